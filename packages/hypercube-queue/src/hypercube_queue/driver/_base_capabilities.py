"""The portable part of the optional capabilities, one class each, to derive a driver from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from hypercube_queue._capabilities import DeadLetter, QueueStats
from hypercube_queue._checks import MAX_POP, checked_count, checked_name, checked_queue_name
from hypercube_queue._message import Message
from hypercube_queue.driver._base_queue import BaseQueue
from hypercube_queue.driver._batch import ItemErrors, SettlementBatch, SettlementItem
from hypercube_queue.driver._delivery import Delivery

D = TypeVar("D", bound=Delivery)


class BaseVisibilityExtender(BaseQueue[D]):
    """The capability VisibilityExtender."""

    @property
    def visibility_timeout(self) -> timedelta:
        return self._visibility_timeout

    def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        with self._gate:
            batch = SettlementBatch(
                "extend_visibility",
                messages,
                self._delivery_type,
                self,
                self.guarantees,
                extension=extension,
            )
            self._settle_batch(batch, lambda items: self._extend_visibility(items, extension))

    @abstractmethod
    def _extend_visibility(
        self, items: Sequence[SettlementItem[D]], extension: timedelta
    ) -> ItemErrors:
        """Let the leases of these deliveries end `extension` from now."""


class BaseReleaser(BaseQueue[D]):
    """The capability Releaser."""

    def release(self, *messages: Message) -> None:
        with self._gate:
            self._settle_batch(self._settlement_batch("release", messages), self._release)

    @abstractmethod
    def _release(self, items: Sequence[SettlementItem[D]]) -> ItemErrors:
        """Put the messages back where they were, as if they had not been delivered."""


class BaseRedriver(BaseQueue[D]):
    """The capability Redriver."""

    def redrive(self, queue_name: str, count: int) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self.guarantees)
            return self._redrive(queue_name, checked_count("count", count))

    @abstractmethod
    def _redrive(self, queue_name: str, count: int) -> int:
        """Make up to `count` dead letters ready, oldest first; return how many there were."""


class BaseStatsProvider(BaseQueue[D]):
    """The capability StatsProvider."""

    def queues(self) -> list[str]:
        with self._gate:
            return sorted(self._queues())

    @abstractmethod
    def _queues(self) -> list[str]:
        """The queues that hold messages, in any order."""

    def stats(self, queue_name: str) -> QueueStats:
        with self._gate:
            return self._stats(checked_queue_name(queue_name, self.guarantees))

    @abstractmethod
    def _stats(self, queue_name: str) -> QueueStats:
        """The numbers of one queue, zeros for one that holds nothing."""


class BaseDeadLetterStore(BaseQueue[D]):
    """The capability DeadLetterStore."""

    def dead_letters(
        self, queue_name: str, limit: int, before: str | None = None
    ) -> list[DeadLetter]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self.guarantees)
            checked_count("limit", limit, at_most=MAX_POP)
            return self._dead_letters(queue_name, limit, before)

    @abstractmethod
    def _dead_letters(self, queue_name: str, limit: int, before: str | None) -> list[DeadLetter]:
        """A page of dead letters, newest first; raises InvalidArgument for a foreign cursor."""

    def redrive_ids(self, queue_name: str, *ids: str) -> int:
        return self._change_dead_letters(queue_name, ids, self._redrive_ids)

    @abstractmethod
    def _redrive_ids(self, queue_name: str, ids: Sequence[str]) -> int:
        """Make these dead letters ready; return how many there were."""

    def forget(self, queue_name: str, *ids: str) -> int:
        return self._change_dead_letters(queue_name, ids, self._forget)

    @abstractmethod
    def _forget(self, queue_name: str, ids: Sequence[str]) -> int:
        """Remove these dead letters; return how many there were."""

    def _change_dead_letters(
        self, queue_name: str, ids: Sequence[str], change: Callable[[str, Sequence[str]], int]
    ) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self.guarantees)
            names = [checked_name("id", each, may_be_empty=False) for each in ids]
            return change(queue_name, names) if names else 0
