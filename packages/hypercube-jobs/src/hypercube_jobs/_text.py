"""Texts of others as logs and terminals can show them."""

from __future__ import annotations

import re
import unicodedata

from hypercube_queue import InvalidArgument
from hypercube_queue.checks import checked_name, safe_repr

#: Controls, what changes the direction of a text or has no width, line and paragraph separators,
#: surrogates, and what Unicode has not assigned or leaves to agreement.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
#: Letters and marks that show nothing.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u2800\u3164\uffa0")
_ASCII = re.compile(r"[ -~]*")


def is_printable(char: str) -> bool:
    """Whether people can see the character, spaces included."""
    return unicodedata.category(char) not in _UNPRINTABLE and char not in _BLANK


def checked_declared_name(field: str, value: object) -> str:
    """`value` as a name that people can tell from others when they read it.

    Raises InvalidArgument where the contract does, and for a character that cannot be seen.
    """
    name = checked_name(field, value, may_be_empty=False)
    for position, char in enumerate(name):
        if not is_printable(char):
            raise InvalidArgument(
                f"{field} {safe_repr(name)} has the character U+{ord(char):04X} at position "
                f"{position}, which nobody can see; leave it out"
            )
    return name


def one_line(text: str) -> str:
    """The text on one line, with what cannot be printed escaped as Python does it."""
    if _ASCII.fullmatch(text):
        return text  # nearly every text is
    return "".join(char if is_printable(char) else _escaped(char) for char in text)


def lines_of(text: str) -> list[str]:
    """The lines of a text, which newlines alone separate; tabs are spaces."""
    return [one_line(line.expandtabs(4)) for line in text.split("\n")]


def indented(text: str) -> str:
    """The text with all its lines indented, so that none passes for a line of the log."""
    return "\n".join(f"    {line}" for line in lines_of(text))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
