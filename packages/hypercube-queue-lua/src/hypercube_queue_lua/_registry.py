"""The names of all queues under a prefix, and the generations under which they were noted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from hypercube_queue import InvalidArgument, QueueError
from hypercube_queue.driver import Deadline, checked_name, chunked
from hypercube_queue_lua._client import Call, Client, Reply
from hypercube_queue_lua._keys import queue_keys, registry_key
from hypercube_queue_lua._replies import as_bytes, as_int, as_list
from hypercube_queue_lua._scripts import script

#: How many names are noted in one run of a script.
_CHUNK = 256
#: Known names of queues are forgotten beyond so many, which costs a command for each.
_MOST_NAMES = 10_000
#: How many names of the registry are looked at together.
_PAGE = 1_000
#: A queue that is empty stays in the registry for so long after the last push, in microseconds:
#: the next push after its removal takes two round trips more.
_UNUSED_US = 10 * 60 * 1_000_000
#: What the script `usage` says of a queue.
_RETAINS, _UNUSED = 2, 0


class Registry:
    """The registry of a server, and what this process knows of it.

    How a name is removed while others push stands with the layout, in `_keys`.
    """

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        #: Names of queues, and the generations under which they were noted.
        self._noted: dict[str, int] = {}

    def unknown(self, names: Iterable[str]) -> set[str]:
        """Those that this process has not noted yet."""
        return {name for name in names if name not in self._noted}

    def generation(self, name: str) -> int:
        """The generation under which this process has noted the name."""
        return self._noted.get(name, 0)

    def note(self, generations: Mapping[str, int], end: Deadline) -> None:
        """Register the names, with at least these generations."""
        for chunk in chunked(sorted(generations), _CHUNK):
            args = [part for name in chunk for part in (name.encode(), generations[name])]
            reply = self._ask(Call(script("register"), (registry_key(self._prefix),), args), end)
            if len(self._noted) > _MOST_NAMES:
                self._noted.clear()
            self._noted.update(zip(chunk, map(as_int, as_list(reply)), strict=True))

    def names(self, end: Deadline) -> set[str]:
        """The names of queues that retain anything.

        Names of queues that are empty, and were not pushed to for ten minutes, are removed from
        the registry on the way, as long as half of the time is left.
        """
        half = end.seconds_left() / 2
        retaining = set()
        cursor = b"0"
        while True:
            call = Call(script("names"), (registry_key(self._prefix),), (cursor, _PAGE))
            after, found = as_list(self._ask(call, end))
            page = dict(_registered(as_list(found)))
            unused = {}
            for name, use in self._usage(page, end):
                if use == _RETAINS:
                    retaining.add(name)
                elif use == _UNUSED:
                    unused[name] = page[name]
            if unused and end.seconds_left() > half:
                self._remove(unused, end)
            cursor = as_bytes(after)
            if cursor == b"0":
                return retaining

    def _usage(self, names: Iterable[str], end: Deadline) -> Iterator[tuple[str, int]]:
        calls = [
            Call(script("usage"), queue_keys(self._prefix, name).all, (_UNUSED_US,))
            for name in names
        ]
        for name, reply in zip(names, self._client.run(calls, end) if calls else (), strict=True):
            if isinstance(reply, QueueError):
                raise reply
            yield name, as_int(reply)

    def _remove(self, unused: Mapping[str, int], end: Deadline) -> None:
        """Take names out of the registry; what fails or was used meanwhile stays there."""
        calls = [
            Call(script("close"), queue_keys(self._prefix, name).all, (_UNUSED_US, generation))
            for name, generation in unused.items()
        ]
        closed: list[bytes | int] = []
        for (name, generation), reply in zip(
            unused.items(), self._client.run(calls, end), strict=True
        ):
            if reply == 1:
                closed += (name.encode(), generation)
        if closed:
            with suppress(QueueError):
                call = Call(script("unregister"), (registry_key(self._prefix),), closed)
                self._ask(call, end)

    def _ask(self, call: Call, end: Deadline) -> Reply:
        [reply] = self._client.run([call], end)
        if isinstance(reply, QueueError):
            raise reply
        return reply


def _registered(found: Sequence[Reply]) -> Iterator[tuple[str, int]]:
    """Names and generations of a page of the registry."""
    for raw, generation in zip(found[::2], found[1::2], strict=True):
        name, number = as_bytes(raw), as_bytes(generation)
        # Somebody may have written to the server by hand.
        with suppress(UnicodeDecodeError, InvalidArgument):
            yield (
                checked_name("queue_name", name.decode(), may_be_empty=False),
                int(number) if number.isdigit() and len(number) < 10 else 0,
            )
