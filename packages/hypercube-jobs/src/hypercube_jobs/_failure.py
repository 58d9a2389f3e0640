"""What is kept of a failed attempt."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeAlias

from hypercube_jobs._text import one_line
from hypercube_queue.times import from_epoch_microseconds

#: What a failure may take of the headroom that every driver keeps for it, as encoded JSON.
_TYPE_BYTES = 300
_TEXT_BYTES = 3_000
_TRACEBACK_BYTES = 8_000
#: How far a chain of causes, or a tree of grouped errors, is followed.
_DEPTH = 4
#: Frames kept at the outer and at the inner end of a stack.
_OUTER_FRAMES = 3
_INNER_FRAMES = 12

#: All that some store, terminal or parser refuses: controls but tab and newline, surrogates.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
#: Before each further line of a text, so that none can pass for a line of its own.
_INDENT = "    "
_OUR_FOLDER = str(Path(__file__).parent)

#: Frames and the lines that they are at, outermost first.
Frames: TypeAlias = list[tuple[FrameType, int]]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed. Part of the message from then on."""

    #: The error's type, with its module unless it is built in.
    type: str
    #: The error's text, shortened.
    text: str
    #: The number of the attempt.
    attempt: int
    #: When it failed, in UTC, by the worker's clock.
    at: datetime
    #: Where it happened, shortened; outermost frame first.
    traceback: str = field(default="", repr=False)

    def without_traceback(self) -> Failure:
        """The same with less to store."""
        return replace(self, traceback="")


def failure_of(
    error: BaseException, *, attempt: int, at: datetime, stack: Frames | None = None
) -> Failure:
    """What to keep of `error`; `stack` says where an attempt is that has raised nothing yet.

    Whatever the error does, this raises nothing, and the result fits every store.
    """
    try:
        lines = list(_error_lines(error, _DEPTH, set()))
        if stack is not None:
            lines += ["Where it was then:\n", *_stack_lines(stack)]
    except BaseException:  # noqa: BLE001  # an error may do anything when it is looked at
        lines = []
    return Failure(
        type=one_line(_cut(type_name(error), _TYPE_BYTES)),
        text=_cut(text_of(error), _TEXT_BYTES),
        attempt=attempt,
        at=at,
        traceback=_cut("".join(lines), _TRACEBACK_BYTES),
    )


def to_wire(failure: Failure, at_us: int) -> dict[str, object]:
    """`failure` as it is stored in a record; `at_us` is its time since 1970."""
    wire: dict[str, object] = {
        "type": failure.type,
        "text": failure.text,
        "attempt": failure.attempt,
        "at": at_us,
    }
    if failure.traceback:
        wire["traceback"] = failure.traceback
    return wire


def from_wire(value: object) -> Failure | None:
    """The inverse of `to_wire`; None for anything else."""
    if not isinstance(value, dict):
        return None
    type_, text, attempt, at = (value.get(key) for key in ("type", "text", "attempt", "at"))
    trace = value.get("traceback", "")
    if not isinstance(type_, str) or not isinstance(text, str) or not isinstance(trace, str):
        return None
    if not isinstance(attempt, int) or not isinstance(at, int):
        return None
    try:
        # Anybody who may push can write a record.
        return Failure(one_line(type_), text, attempt, from_epoch_microseconds(at), trace)
    except OverflowError:
        return None


def frames_of_thread(thread_id: int | None) -> Frames:
    """Where a thread is; nothing if it has ended."""
    innermost = sys._current_frames().get(thread_id or 0)
    return list(traceback.walk_stack(innermost))[::-1] if innermost is not None else []


def stack_text(frames: Frames) -> str:
    """`frames` as a traceback shows them, shortened."""
    return _cut("".join(_stack_lines(frames)), _TRACEBACK_BYTES).rstrip()


def type_name(error: BaseException) -> str:
    """The error's type as people look for it: `ValueError`, `smtplib.SMTPDataError`."""
    kind = type(error)
    name = type.__dict__["__qualname__"].__get__(kind)  # past whatever its metaclass does
    try:
        module = kind.__module__
    except BaseException:  # noqa: BLE001  # a metaclass may raise anything
        return str(name)
    if type(module) is not str:  # C code and tricks of metaclasses set None
        return str(name)
    # A private module is no place to look: its package exports what people may catch.
    public = [part for part in module.split(".") if not part.startswith("_")]
    if not public or public == ["builtins"]:
        return str(name)
    return f"{'.'.join(public)}.{name}"


def text_of(error: BaseException) -> str:
    """The error's text, even if it has a broken `__str__`."""
    try:
        return str.__str__(str(error))  # of a subclass of str the plain text
    except BaseException as broken:  # noqa: BLE001  # it may raise anything, sys.exit() included
        return f"(its text cannot be had: str() raised {type_name(broken)})"


def cleaned(text: str) -> str:
    """`text` with everything that a store or a terminal could choke on replaced."""
    return _UNWANTED.sub("\N{REPLACEMENT CHARACTER}", text)


def first_line(text: str) -> str:
    """The first line of an error's text, as a log shows it."""
    return one_line(text.partition("\n")[0])


def _cut(text: str, limit: int) -> str:
    """`text`, cleaned, in at most `limit` bytes of JSON; what is cut goes from the middle."""
    # Before cleaning: a text of a gigabyte must not cost a second one.
    if len(text) > limit:
        text = f"{text[: limit // 2]} [...] {text[-(limit // 2) :]}"
    text = cleaned(text)
    while (size := _json_size(text)) > limit:
        keep = max(1, len(text) * limit // size * 9 // 20)
        text = f"{text[:keep]} [...] {text[-keep:]}" if keep > 8 else text[: keep * 2]
    return text


def _json_size(text: str) -> int:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return len(text)
    return sum(
        (2 if char in '"\\\n\t' else 1) if char < "\x80" else 6 if char < "\U00010000" else 12
        for char in text
    )


def _error_lines(error: BaseException, depth: int, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and depth > 1 and id(cause) not in seen:
        yield from _error_lines(cause, depth - 1, seen)
        yield "which led to:\n"
    yield from _stack_lines(_frames_in(error.__traceback__))
    text = _cut(text_of(error), _TEXT_BYTES // 6).replace("\n", f"\n{_INDENT}")
    yield f"{one_line(type_name(error))}: {text}\n"
    if isinstance(error, BaseExceptionGroup) and depth > 1:
        for number, part in enumerate(error.exceptions[:_DEPTH], 1):
            if id(part) not in seen:
                yield f"part {number} of {len(error.exceptions)}:\n"
                yield from _error_lines(part, depth - 1, seen)


def _frames_in(trace: TracebackType | None) -> Frames:
    frames = [(frame, line) for frame, line in traceback.walk_tb(trace)]
    # How the worker came to call the handler is of no interest.
    ours = 0
    while ours < len(frames) and frames[ours][0].f_code.co_filename.startswith(_OUR_FOLDER):
        ours += 1
    return frames[ours:]


def _stack_lines(frames: Frames) -> Iterator[str]:
    kept = frames
    if len(frames) > _OUTER_FRAMES + _INNER_FRAMES:
        kept = frames[:_OUTER_FRAMES] + frames[-_INNER_FRAMES:]
    yield from traceback.StackSummary.extract(iter(kept)).format()
    if len(kept) < len(frames):
        yield f"  ({len(frames) - len(kept)} frames between these are left out)\n"
