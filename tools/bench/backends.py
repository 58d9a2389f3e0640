"""What can be measured: a fresh queue and the raw limit beside it, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raw import Raw, RawDeque, RawSQLite


@dataclass(frozen=True)
class Backend:
    """One configuration of a driver."""

    #: The URL of a fresh queue, given an empty folder.
    url: Callable[[Path], str]
    raw: Callable[[Path], Raw]


BACKENDS: dict[str, Backend] = {
    "memory": Backend(lambda _folder: "memory://", lambda _folder: RawDeque()),
    "sqlite": Backend(
        lambda folder: f"sqlite:///{folder}/queue.db", lambda folder: RawSQLite(folder, "FULL")
    ),
    "sqlite-normal": Backend(
        lambda folder: f"sqlite:///{folder}/queue.db?synchronous=NORMAL",
        lambda folder: RawSQLite(folder, "NORMAL"),
    ),
}
