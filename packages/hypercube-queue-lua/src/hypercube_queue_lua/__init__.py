"""What Hypercube's drivers for Redis and Valkey share: storage layout and atomic transitions.

Knows no client. A driver gives `LuaQueue` a `Client` and translates its errors.
"""

from __future__ import annotations

from hypercube_queue_lua.__about__ import __version__
from hypercube_queue_lua._client import Call, Client, Reply
from hypercube_queue_lua._errors import WRONG_SERVER, is_password_unexpected, server_error
from hypercube_queue_lua._keys import DEFAULT_PREFIX, slot_of
from hypercube_queue_lua._options import Options, addresses
from hypercube_queue_lua._queue import GUARANTEES, LuaQueue
from hypercube_queue_lua._scripts import Script

__all__ = [
    "DEFAULT_PREFIX",
    "GUARANTEES",
    "WRONG_SERVER",
    "Call",
    "Client",
    "LuaQueue",
    "Options",
    "Reply",
    "Script",
    "__version__",
    "addresses",
    "is_password_unexpected",
    "server_error",
    "slot_of",
]
