"""What makes a driver object a context manager."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A base for driver objects: leaving the `with` block closes them, whatever was raised."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """See `Queue.close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
