"""Everything a queue raises.

QueueError
├── InvalidArgument (also a ValueError)
│   └── MessageTooLarge
├── AlreadyExists
├── NotFound (also a LookupError)
├── CapacityExceeded
├── BackendError
├── QueueClosed
└── BatchError (also an ExceptionGroup)

A batch operation reports every failure in one `BatchError` (ERR-1). Any other
exception of this module raised plainly means that nothing of the call took effect,
unless it is a `BackendError` whose `outcome_unknown` is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypercube_queue._message import Message


class QueueError(Exception):
    """The root of all errors that a queue raises on purpose."""


class InvalidArgument(QueueError, ValueError):
    """The caller passed something that no attempt can make work. Nothing was sent for it."""


class MessageTooLarge(InvalidArgument):
    """`payload` plus `extra` exceed `guarantees.max_message_bytes`. Nothing was sent for it."""


class AlreadyExists(QueueError):
    """A message with this id is retained in the same queue, and stays as it is (PUSH-4)."""


class NotFound(QueueError, LookupError):
    """The delivery no longer owns its message, so the settlement changed nothing (SET-2)."""


class CapacityExceeded(QueueError):
    """The server refused for lack of space. Nothing was stored; worth repeating later."""


class BackendError(QueueError):
    """The backend or the way to it failed; the client's exception is the `__cause__` (ERR-4).

    With `outcome_unknown` the request may have been applied: repeat a push under the same
    id, and take a `NotFound` of a repeated settlement for success. Without it nothing was
    changed.

    With `permanent` no repetition helps until a person has changed something: the password
    or a right is missing, or the database, its tables or its folder (ERR-7). An outage is
    never permanent.
    """

    outcome_unknown: bool
    permanent: bool

    def __init__(
        self, message: str, *, outcome_unknown: bool = False, permanent: bool = False
    ) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        self.permanent = permanent


class QueueClosed(QueueError):
    """The queue object was closed, or belongs to the process that this one was forked from."""


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """One failed item of a batch: its position in the caller's arguments, the item, the reason.

    `message` is the very object the caller passed, so it may be something that is no
    Message at all.
    """

    index: int
    message: Message | object
    error: QueueError


class BatchError(QueueError, ExceptionGroup[QueueError]):
    """Some items of a batch failed; every item that is not listed succeeded (ERR-1).

    `except QueueError` and `except* NotFound` both catch it. `failed` is in ascending order
    of index, and an index is the item's position in the caller's arguments (ERR-2).
    """

    failed: tuple[ItemFailure, ...]

    def __new__(cls, message: str, failed: Iterable[ItemFailure]) -> BatchError:
        entries = tuple(sorted(failed, key=lambda failure: failure.index))
        self = super().__new__(cls, message, [entry.error for entry in entries])
        self.failed = entries
        return self

    def __init__(self, message: str, failed: Iterable[ItemFailure]) -> None:  # noqa: ARG002
        # __new__ has consumed `failed`, which may be an iterator.
        super().__init__(message, [entry.error for entry in self.failed])

    def derive(self, excs: Sequence[BaseException]) -> BaseExceptionGroup:  # type: ignore[override]
        """A BatchError of the failures whose errors are in `excs`, original indexes kept."""
        wanted = {id(error) for error in excs}
        kept = [failure for failure in self.failed if id(failure.error) in wanted]
        if len(kept) != len(excs):
            # The caller regrouped errors of his own; no index belongs to them.
            return BaseExceptionGroup(self.message, excs)
        return BatchError(self.message, kept)

    def __str__(self) -> str:
        shown = [
            f"[{failure.index}] {type(failure.error).__name__}: {failure.error}"
            for failure in self.failed[:_SHOWN_FAILURES]
        ]
        if len(self.failed) > _SHOWN_FAILURES:
            shown.append(f"and {len(self.failed) - _SHOWN_FAILURES} more")
        return f"{self.message}: {'; '.join(shown)}"

    def __reduce__(self) -> tuple[type[BatchError], tuple[str, tuple[ItemFailure, ...]]]:
        return type(self), (self.message, tuple(map(_without_delivery, self.failed)))


def _without_delivery(failure: ItemFailure) -> ItemFailure:
    """The failure as another process may have it: a delivery means nothing there."""
    if not isinstance(failure.message, Message):
        return failure
    return replace(failure, message=replace(failure.message, driver_data=None))


#: Enough to recognise the trouble; a batch of 10,000 must not fill a log line.
_SHOWN_FAILURES = 3


# Tracebacks and logs name them by where they are imported from.
for _error in tuple(globals().values()):
    if (
        isinstance(_error, type)
        and issubclass(_error, BaseException)
        and _error.__module__ == __name__
    ):
        _error.__module__ = __name__.rpartition(".")[0]
