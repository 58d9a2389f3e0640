"""What is known of a queue at AWS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A queue at AWS."""

    url: str
    #: What identifies it everywhere.
    arn: str
    #: How long it keeps a message, in seconds.
    retention: int
    #: The longest body it takes.
    most_bytes: int
