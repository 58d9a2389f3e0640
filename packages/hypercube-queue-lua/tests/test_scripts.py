"""The Lua files as they are sent to servers."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import hypercube_queue_lua
from hypercube_queue_lua._scripts import script

_FOLDER = Path(hypercube_queue_lua.__file__).parent / "lua"
NAMES = sorted(file.stem for file in _FOLDER.glob("*.lua") if file.stem != "prelude")

#: These store nothing that was not stored before, or have to work when memory is short.
_READING = {"dead_letters", "eviction", "names", "stats", "usage"}
_STORING = {"push", "register"}


@pytest.mark.parametrize("name", NAMES)
def test_a_script_says_what_the_server_may_do_with_it(name: str) -> None:
    """In the first line: look in any state, store while there is room, or run at any time."""
    first = script(name).source.split(b"\n")[0].decode()
    if name in _READING:
        assert first == "#!lua flags=no-writes"
    elif name in _STORING:
        assert first == "#!lua"
    else:
        assert first == "#!lua flags=allow-oom"


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_known_by_its_digest(name: str) -> None:
    """As the server computes it."""
    found = script(name)
    assert found.sha == hashlib.sha1(found.source).hexdigest().encode()
    assert script(name) is found


@pytest.mark.parametrize("name", NAMES)
def test_a_script_says_what_it_is_for(name: str) -> None:
    """In the lines below the first."""
    assert (_FOLDER / f"{name}.lua").read_text().splitlines()[1].startswith("-- ")


def test_no_script_takes_a_body_apart() -> None:
    """No decoder of any format is ever called (OWN-3), and no clock but the server's."""
    text = "".join(file.read_text() for file in _FOLDER.glob("*.lua"))
    assert re.findall(r"cjson|cmsgpack|os\.time|os\.clock", text) == []
    assert re.findall(r"string\.(?:find|match|gsub)\(body", text) == []
