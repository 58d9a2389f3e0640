"""The Lua scripts, from their files."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.resources import files

#: These touch no queue, or nothing of it but a wake-up.
_WITHOUT_PRELUDE = frozenset({"eviction", "farewell", "names", "register", "unregister"})


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """A script, and the digest by which a server that knows it is asked to run it."""

    name: str
    source: bytes
    sha: bytes


@functools.cache
def script(name: str) -> Script:
    """The script in the file of this name."""
    source = _read(name)
    if name not in _WITHOUT_PRELUDE:
        # The first line says what the server may do with the script, and must stay the first.
        first, _, rest = source.partition("\n")
        source = f"{first}\n{_read('prelude')}\n{rest}"
    encoded = source.encode()
    return Script(name, encoded, hashlib.sha1(encoded, usedforsecurity=False).hexdigest().encode())


def _read(name: str) -> str:
    return files("hypercube_queue_lua").joinpath("lua", f"{name}.lua").read_text("utf-8")
