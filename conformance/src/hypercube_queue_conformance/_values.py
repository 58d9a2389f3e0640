"""Values that stores are known to mangle, and values that no queue may take."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from hypercube_queue import MAX_DURATION, MAX_NAME_BYTES, Guarantees


class Foreign:
    """Something of no type that a queue knows."""

    def __repr__(self) -> str:
        return "Foreign()"


#: Payloads that something on the way might parse, strip, decode or shorten.
PAYLOADS = (
    b"",
    b"\x00",
    b"\x07 a bell",
    b"[]",
    b"{}",
    b"1.0",
    b"9007199254740993",
    b"null",
    b" padded \n",
    b"\xff\xfe not UTF-8 \x80",
    bytes(range(256)),
    b"' OR 1=1; -- %s {0} $1 \\",
)

#: Names that a store might fold, pad, strip, normalise or take for syntax.
NAMES = (
    "x",
    "X",
    "x ",
    " x",
    "é",  # composed
    "e\u0301",  # decomposed
    "ß",
    "ss",
    "{x}",
    "x:y/z.*?#[]",
    "%78",
    "'; --",
    "\u202eabc",
    "\U0001f407",
    "名前",
    "0",
    "None",
    "x" * MAX_NAME_BYTES,
    "é" * (MAX_NAME_BYTES // 2),
)

#: What is no name, whatever the field.
BAD_NAMES: tuple[object, ...] = (
    None,
    7,
    b"bytes",
    "line\nbreak",
    "nul\x00",
    "del\x7f",
    "c1\x85",
    "lone \ud800",
    "x" * (MAX_NAME_BYTES + 1),
    "é" * (MAX_NAME_BYTES // 2 + 1),
)

#: What is no payload and no extra.
BAD_BYTES: tuple[object, ...] = (None, "text", 7, [1, 2], Foreign())

#: What is no duration at all.
BAD_DURATIONS: tuple[object, ...] = (1, 1.5, "1", timedelta(microseconds=-1), timedelta(days=-1))

#: What is a duration, but too long for any backend.
TOO_LONG = MAX_DURATION + timedelta(microseconds=1)

names = st.text(
    st.characters(exclude_categories=("Cc", "Cs")), max_size=MAX_NAME_BYTES // 4
) | st.sampled_from(NAMES)
contents = st.binary(max_size=200) | st.sampled_from(PAYLOADS)


def visibility_timeouts(guarantees: Guarantees) -> st.SearchStrategy[timedelta | None]:
    """Leases that do not end within a test, to the microsecond."""
    shortest = min(timedelta(minutes=10), guarantees.max_visibility)
    return st.none() | st.timedeltas(shortest, guarantees.max_visibility)
