"""The boto3 sessions of this process: one for all queues with the same credentials.

Making one reads thousands of files, and each asks for credentials by itself.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import boto3  # type: ignore[import-untyped]  # it ships no types
from botocore.config import Config  # type: ignore[import-untyped]


@dataclass(frozen=True, slots=True)
class Access:
    """As whom, and where; None is what boto3 finds."""

    key: str | None
    secret: str | None = field(repr=False)
    region: str | None
    profile: str | None

    def client(self, service: str, endpoint: str | None, config: Config) -> Any:
        """A new client of this service; raises what boto3 raises."""
        # Of the process that this one was forked from, a lock may be taken for ever.
        key = (os.getpid(), self)
        session = _sessions.get(key)
        if session is None:
            session = _sessions.setdefault(key, _Session(self))
        return session.client(service, endpoint, config)


class _Session:
    """Makes clients one after the other, which is all that a session can."""

    def __init__(self, access: Access) -> None:
        self._making = threading.Lock()
        self._session = boto3.Session(
            aws_access_key_id=access.key,
            aws_secret_access_key=access.secret,
            region_name=access.region,
            profile_name=access.profile,
        )

    def client(self, service: str, endpoint: str | None, config: Config) -> Any:
        with self._making:
            return self._session.client(service, endpoint_url=endpoint, config=config)


_sessions: dict[tuple[int, Access], _Session] = {}
