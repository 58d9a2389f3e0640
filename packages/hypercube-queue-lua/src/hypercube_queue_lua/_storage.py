"""A queue's transitions as script calls: chunks out, replies in."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hypercube_queue import BackendError, QueueError, QueueStats
from hypercube_queue.driver import (
    Deadline,
    Indexed,
    PushBatch,
    PushItem,
    SettlementBatch,
    chunked,
    copy_error,
    safe_repr,
)
from hypercube_queue_lua._client import Call, Client, Reply
from hypercube_queue_lua._delivery import LuaDelivery, Settled
from hypercube_queue_lua._errors import unsent
from hypercube_queue_lua._keys import queue_keys, registry_key
from hypercube_queue_lua._registry import Registry
from hypercube_queue_lua._replies import as_bytes, as_int, as_list
from hypercube_queue_lua._scripts import script
from hypercube_queue_lua._wire import (
    Buried,
    Taken,
    buried,
    packed_ids,
    packed_messages,
    packed_tokens,
    stored_push,
    stored_settlement,
    taken,
)

I = TypeVar("I", bound=Indexed)  # noqa: E741 - an item

#: How many messages a script handles in one run; the server does nothing else meanwhile.
CHUNK = 256
#: About how many bytes of contents go with one run, beyond the first message.
CHUNK_BYTES = 4 * 1024 * 1024
#: How often a push is repeated under another generation. Each time somebody else must have
#: removed the name, and nobody does so soon after a push.
_MOST_REFUSALS = 3
_TOKEN_BYTES = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """What one run of `pop` leased."""

    token: bytes
    taken: Iterator[Taken]
    #: The bytes of what was leased, ids included.
    size: int
    more: bool
    #: When something becomes ready by itself; None if nothing does.
    seconds_to_due: float | None


class Storage:
    """The queues under one prefix of a server."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._registry = Registry(client, prefix)

    # Push

    def push(self, batch: PushBatch, end: Deadline) -> None:
        """Store the items of the batch, and note in it what failed."""
        by_queue = _by_queue(batch.items, lambda item: item.queue_name)
        unknown = dict.fromkeys(self._registry.unknown(by_queue), 0)
        for _ in range(1 + _MOST_REFUSALS):
            if not by_queue:
                return
            if unknown:
                try:
                    self._registry.note(unknown, end)
                except QueueError as error:
                    refused = partial(unsent, error)
                    for name in unknown:
                        batch.fail_all(by_queue.pop(name), refused)
            by_queue, unknown = self._push(batch, by_queue, unknown, end)
        for name, items in by_queue.items():
            text = (
                f"queue {safe_repr(name)} was removed from the registry again and again, each time "
                "before a message could be stored; do its servers agree on the time?"
            )
            batch.fail_all(items, lambda: BackendError(text))  # noqa: B023 - called at once

    def _push(
        self,
        batch: PushBatch,
        by_queue: dict[str, list[PushItem]],
        just_noted: Container[str],
        end: Deadline,
    ) -> tuple[dict[str, list[PushItem]], dict[str, int]]:
        """The items that were refused, by queue, and the generations to be noted for them."""
        chunks = []
        calls = []
        for name, items in by_queue.items():
            keys = queue_keys(self._prefix, name).all
            known = (self._registry.generation(name), int(name in just_noted))
            stored = ((item, stored_push(item)) for item in items)
            for chunk in chunked(stored, CHUNK, max_bytes=CHUNK_BYTES, size=_body_size):
                chunks.append([item for item, _ in chunk])
                packed = packed_messages(each for _, each in chunk)
                calls.append(Call(script("push"), keys, (*packed, *known)))
        refused: dict[str, list[PushItem]] = {}
        generations: dict[str, int] = {}
        for items, [outcome, *rest] in self._replies(batch, chunks, calls, end):
            if outcome < 0:
                name = items[0].queue_name
                refused.setdefault(name, []).extend(items)
                generations[name] = max(rest)
                continue
            for index in rest:
                batch.fail_existing(items[index - 1])
        return refused, generations

    # Pop

    def claim(
        self, queue_name: str, limit: int, max_bytes: int, visibility_us: int, end: Deadline
    ) -> Claim:
        """Lease up to `limit` ready messages, up to that with which they reach `max_bytes`.

        One run of the script handles no more than a chunk.
        """
        token = os.urandom(_TOKEN_BYTES)
        keys = queue_keys(self._prefix, queue_name).all
        args = (min(limit, CHUNK), min(max_bytes, CHUNK_BYTES), visibility_us, token)
        more, due_us, heads, parts = as_list(self._ask(Call(script("pop"), keys, args), end))
        seconds = as_int(due_us) / 1_000_000
        return Claim(
            token,
            taken(as_bytes(heads), as_bytes(parts)),
            len(as_bytes(parts)),
            bool(more),
            seconds if seconds >= 0 else None,
        )

    def wait(self, queue_name: str, farewell: bytes, seconds: float, end: Deadline) -> None:
        """Block until there is a token, or a farewell to the object of that name."""
        keys = queue_keys(self._prefix, queue_name)
        self._client.block((keys.wake, keys.farewell + farewell), seconds, end)

    def wake(self, queue_name: str, end: Deadline) -> None:
        """Put a token back."""
        self._ask(Call(script("wake"), queue_keys(self._prefix, queue_name).all, ()), end)

    def say_farewell(self, waiting: dict[str, int], farewell: bytes, end: Deadline) -> None:
        """Wake so many waiting pops of the object, by queue; errors do not matter any more."""
        self._client.run(
            [
                Call(
                    script("farewell"),
                    (queue_keys(self._prefix, name).farewell + farewell,),
                    (count,),
                )
                for name, count in waiting.items()
            ],
            end,
        )

    def set_aside(
        self, queue_name: str, message: Taken, token: bytes, reason: str, end: Deadline
    ) -> bool:
        """Bury what cannot be read; False if the lease is over."""
        keys = queue_keys(self._prefix, queue_name).all
        args = (message.id, token, reason.encode())
        return bool(self._ask(Call(script("set_aside"), keys, args), end))

    # Settlement

    def settle(
        self,
        batch: SettlementBatch[LuaDelivery],
        name: str,
        end: Deadline,
        *,
        contents: bool = False,
        args: Sequence[int] = (),
    ) -> None:
        """Run the settlement of this name for the items, and note in the batch what failed."""
        chunks = []
        calls = []
        for queue_name, items in _by_queue(
            batch.items, lambda item: item.delivery.queue_name
        ).items():
            keys = queue_keys(self._prefix, queue_name).all
            for chunk in chunked(items, CHUNK, max_bytes=CHUNK_BYTES, size=_contents_size):
                tokens = packed_tokens([item.delivery.token for item in chunk])
                packed = (
                    packed_messages(map(stored_settlement, chunk))
                    if contents
                    else packed_ids([item.delivery.raw_id for item in chunk])
                )
                chunks.append(chunk)
                calls.append(Call(script(name), keys, (*packed, tokens, *args)))
        for chunk, stale in self._replies(batch, chunks, calls, end):
            for index in stale:
                batch.fail_stale(chunk[index - 1])

    # The dead

    def redrive(self, queue_name: str, count: int, end: Deadline) -> int:
        """Make the oldest dead ready; an error after some moved returns their number (RED-4)."""
        keys = queue_keys(self._prefix, queue_name).all
        moved = 0
        after: bytes = b"-inf"
        while moved < count:
            asked = min(CHUNK, count - moved)
            try:
                reply = self._ask(Call(script("redrive"), keys, (asked, after)), end)
            except QueueError:
                if moved:
                    break
                raise
            found, looked, last = as_list(reply)
            moved += as_int(found)
            after = as_bytes(last)
            if as_int(looked) < asked:
                break
        return moved

    def for_dead(self, name: str, queue_name: str, ids: Iterable[str], end: Deadline) -> int:
        """Run `redrive_ids` or `forget`; how many of the ids it found."""
        keys = queue_keys(self._prefix, queue_name).all
        calls = [
            Call(script(name), keys, packed_ids(chunk))
            for chunk in chunked([each.encode() for each in dict.fromkeys(ids)], CHUNK)
        ]
        found = 0
        failed: QueueError | None = None
        for reply in self._client.run(calls, end) if calls else ():
            if isinstance(reply, QueueError):
                failed = failed or reply
            else:
                found += as_int(reply)
        if failed is not None and not found:
            raise failed
        return found

    def dead_letters(
        self, queue_name: str, limit: int, before: int | None, end: Deadline
    ) -> list[Buried]:
        """Up to `limit` of the dead, the newest first."""
        keys = queue_keys(self._prefix, queue_name).all
        found: list[Buried] = []
        place = b"+inf" if before is None else b"(%d" % before
        while len(found) < limit:
            asked = min(CHUNK, limit - len(found))
            args = (asked, place, CHUNK_BYTES)
            heads, parts = as_list(self._ask(Call(script("dead_letters"), keys, args), end))
            page = list(buried(as_bytes(heads), as_bytes(parts)))
            if not page:
                break
            found += page
            place = b"(%d" % page[-1].death
        return found

    # Counting

    def names(self, end: Deadline) -> set[str]:
        """The names of queues that retain anything."""
        return self._registry.names(end)

    def stats(self, queue_name: str, end: Deadline) -> QueueStats:
        """How many messages are in each state."""
        counts = map(as_int, as_list(self._ask(self._stats_call(queue_name), end)))
        return QueueStats(queue_name, *counts)

    def _stats_call(self, queue_name: str) -> Call:
        return Call(script("stats"), queue_keys(self._prefix, queue_name).all, ())

    # The server

    def eviction_policy(self, end: Deadline) -> str | None:
        """What the server does without memory, if the user may know."""
        reply = self._ask(Call(script("eviction"), (registry_key(self._prefix),), ()), end)
        return None if reply is None else as_bytes(reply).decode("ascii", "replace")

    # Within

    def _ask(self, call: Call, end: Deadline) -> Reply:
        [reply] = self._client.run([call], end)
        if isinstance(reply, QueueError):
            raise reply
        return reply

    def _replies(
        self,
        batch: PushBatch | SettlementBatch[LuaDelivery],
        chunks: list[list[I]],
        calls: list[Call],
        end: Deadline,
    ) -> Iterator[tuple[list[I], list[int]]]:
        """Each chunk with its reply; where that is an error, its items have failed."""
        if not calls:
            return
        for chunk, reply in zip(chunks, self._client.run(calls, end), strict=True):
            if isinstance(reply, QueueError):
                error = reply
                batch.fail_all(chunk, lambda: copy_error(error))  # noqa: B023 - called at once
            else:
                yield chunk, [as_int(each) for each in as_list(reply)]


def _by_queue(items: Iterable[I], name_of: Callable[[I], str]) -> dict[str, list[I]]:
    by_queue: dict[str, list[I]] = {}
    for item in items:
        by_queue.setdefault(name_of(item), []).append(item)
    return by_queue


def _body_size(stored: tuple[object, tuple[bytes, bytes, int]]) -> int:
    return len(stored[1][1])


def _contents_size(item: Settled) -> int:
    return len(item.payload) + len(item.extra)
