"""Where a queue is stored: layout 1.

All keys of a queue share one hash tag, so that one script can change them together and queues
spread over the slots of a cluster. The tag is a digest of the queue's name, which may itself
hold anything, braces included. With the prefix `hypercube`:

    hypercube:queues              hash: the registry, name -> generation, noted before messages
    hypercube:{<digest>}:meta     hash: `layout`; `popped`, the number of the last place;
                                  `pushed`, when that was tried last; `generation`
    hypercube:{<digest>}:bodies   hash: id -> body, of every retained message
    hypercube:{<digest>}:state    hash: id -> state, of messages that were delivered
    hypercube:{<digest>}:ready    list: ids, the next to be delivered first
    hypercube:{<digest>}:returned sorted set: ids of released deliveries by their places
    hypercube:{<digest>}:delayed  sorted set: ids by the moment they are due
    hypercube:{<digest>}:leased   sorted set: ids by the end of their leases
    hypercube:{<digest>}:dead     sorted set: ids by the moment of death
    hypercube:{<digest>}:wake     list: at most one token, for whoever waits
    hypercube:{<digest>}:bye:<x>  list: tokens for the waiting pops of a queue object that closes

An id is in `bodies` while it is retained, and in exactly one of `ready`, `returned`, `delayed`,
`leased` and `dead`. Moments are microseconds since 1970 by the server's clock. What is due in
`delayed` and `leased` counts as ready, and the next pops move it to `ready`.

A body is the visibility timeout in microseconds (a double, 0 for the driver's default), which
is all that scripts read of it, and an envelope of the contract without queue name and id.

A state is a letter and the attempts so far (4 bytes). "L", leased: the place it was taken from,
the deadline (doubles), the token of the delivery (8 bytes). "D", dead: why it was set aside, or
nothing. "-": nothing. A message without a state was never delivered.

The token in `wake` says that something is ready, or becomes so within a second. A waiting pop
takes it by a blocking command that lasts a second at most, looks, and leaves a token if it
leaves something behind. So one push wakes one waiter, and a token that is lost with a dying
waiter holds the others up for a second.

The registry is in another slot than the queues, so that no script changes both. A name is
removed in two steps: the queue, if it is empty, closes the generation that the registry has, and
then the registry removes the name, if it still has that one. A push says under which generation
its sender has noted the name. If that was closed, nothing is stored, and the sender notes the next
one first. So a queue that retains messages is in the registry at any moment, whoever dies when.
The generation stays with the queue for good.

A release that changes the layout writes another `layout`, under the same key; every script
looks there first and refuses what it does not know.
"""

from __future__ import annotations

import functools
import hashlib
from binascii import crc_hqx
from dataclasses import dataclass
from typing import TypeAlias

DEFAULT_PREFIX = "hypercube"

Keys: TypeAlias = tuple[bytes, ...]

#: In the order in which the prelude of the scripts names them.
_NAMES = ("meta", "bodies", "state", "ready", "returned", "delayed", "leased", "dead", "wake")


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The keys of one queue."""

    #: As every script of a queue takes them.
    all: Keys
    #: Where a waiting pop is woken.
    wake: bytes
    #: What the key of a closing queue object starts with.
    farewell: bytes


@functools.lru_cache(maxsize=4096)
def queue_keys(prefix: str, queue_name: str) -> QueueKeys:
    """The keys of a queue."""
    digest = hashlib.blake2b(queue_name.encode(), digest_size=16).hexdigest()
    base = f"{prefix}:{{{digest}}}:"
    keys = tuple((base + name).encode() for name in _NAMES)
    return QueueKeys(keys, keys[-1], f"{base}bye:".encode())


def registry_key(prefix: str) -> bytes:
    """The key of the registry."""
    return f"{prefix}:queues".encode()


def slot_of(key: bytes) -> int:
    """The slot of a cluster that a key belongs to."""
    tag = key[key.find(b"{") + 1 : key.find(b"}")] if b"{" in key else key
    return crc_hqx(tag, 0) % 16384
