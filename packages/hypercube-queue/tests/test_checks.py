"""Each check of an argument: what passes, and what the error says of what does not."""

from __future__ import annotations

import enum
import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercube_queue import MAX_DURATION, Guarantees, InvalidArgument, MessageTooLarge
from hypercube_queue.driver import (
    checked_bytes,
    checked_count,
    checked_delay,
    checked_name,
    checked_queue_name,
    checked_size,
    checked_visibility,
    checked_wait,
    safe_repr,
)

_US = timedelta(microseconds=1)

_NAMES = ["a", "x ", " x", "a/b:c{d}", "\u00fc\u4e2d\U0001f600", "\u200b", "\ud7ff", "a" * 255]
_NAMES += ["\u00e9" * 127, "\U0001f600" * 63, "\u2028", "'; DROP TABLE x; --", "%00", "\\x00"]


@pytest.mark.parametrize("name", _NAMES)
def test_a_name_may_hold_anything_that_is_no_control_character(name: str) -> None:
    """Up to 255 bytes, unchanged."""
    assert checked_name("id", name, may_be_empty=False) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "id is empty; give it a name"),
        (None, "id is a str, not NoneType"),
        (b"x", "id is a str, not bytes"),
        (5, "id is a str, not int"),
        ("a\x00b", "id 'a\\x00b' has the character U+0000 at position 1"),
        ("a\nb", "id 'a\\nb' has the character U+000A at position 1"),
        ("\x1f", "has the character U+001F at position 0"),
        ("\x7f", "has the character U+007F at position 0"),
        ("x\x80", "has the character U+0080 at position 1"),
        ("x\x9f", "has the character U+009F at position 1"),
        ("x\ud800", "id 'x\\ud800' has the character U+D800 at position 1"),
        ("x\udfff", "has the character U+DFFF at position 1"),
        ("a" * 256, "has 256 bytes in UTF-8; a name has at most 255"),
        ("\u00e9" * 128, "has 256 bytes in UTF-8; a name has at most 255"),
        ("\U0001f600" * 64, "has 256 bytes in UTF-8; a name has at most 255"),
    ],
)
def test_a_bad_name_is_refused_with_what_is_wrong_about_it(name: object, expected: str) -> None:
    """Type, emptiness, the very character and where it is, or the size."""
    with pytest.raises(InvalidArgument, match=re.escape(expected)):
        checked_name("id", name, may_be_empty=False)


@given(st.text(max_size=300))
def test_a_name_is_accepted_exactly_when_it_is_encodable_short_and_free_of_controls(
    text: str,
) -> None:
    """The rule of the contract, for any text."""
    import unicodedata

    fine = (
        not any(unicodedata.category(character) in {"Cc", "Cs"} for character in text)
        and len(text.encode("utf-8", "surrogatepass")) <= 255
    )
    try:
        accepted = checked_name("id", text, may_be_empty=True) == text
    except InvalidArgument:
        accepted = False

    assert accepted == fine


def test_an_empty_name_passes_where_it_means_something() -> None:
    """An id to be assigned, a job of no name."""
    assert checked_name("job_name", "", may_be_empty=True) == ""


def test_a_name_out_of_an_enumeration_becomes_the_plain_text_it_holds() -> None:
    """Drivers bind it to statements and format it into keys."""

    class Name(str, enum.Enum):  # noqa: UP042  # str() of this one is its label
        BILLING = "billing"

    name = checked_name("queue_name", Name.BILLING, may_be_empty=False)

    assert name == "billing"
    assert type(name) is str


def test_a_queue_name_must_be_one_that_the_backend_can_carry() -> None:
    """As a whole; the error shows the pattern."""
    narrow = Guarantees(durable=True, queue_name_pattern="[a-z]+")

    assert checked_queue_name("billing", narrow) == "billing"
    with pytest.raises(InvalidArgument, match=r"queue_name 'billing 2' .* match \[a-z\]\+"):
        checked_queue_name("billing 2", narrow)
    with pytest.raises(InvalidArgument, match="queue_name is empty"):
        checked_queue_name("", narrow)
    with pytest.raises(InvalidArgument, match="U\\+000A"):
        checked_queue_name("billing\n", narrow)


def test_bytes_pass_as_they_are_and_other_buffers_are_copied() -> None:
    """What the caller does to a buffer later changes nothing (OWN-1)."""

    class Labelled(bytes):
        pass

    plain = b"\x00\xff"
    buffer = bytearray(b"abc")
    every_second = memoryview(buffer)[::2]
    copies = [checked_bytes("payload", buffer), checked_bytes("payload", every_second)]
    buffer[:] = b"xyz"

    assert checked_bytes("payload", plain) is plain
    assert copies == [b"abc", b"ac"]
    assert type(checked_bytes("payload", Labelled(b"x"))) is bytes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "payload is bytes, bytearray or memoryview, not NoneType; encode it first"),
        ("text", "not str; encode it first"),
        (7, "not int; encode it first"),
        ([1, 2], "not list; encode it first"),
    ],
)
def test_what_is_not_bytes_is_refused(value: object, expected: str) -> None:
    """Seven would otherwise become seven zeros, and a list of numbers their bytes."""
    with pytest.raises(InvalidArgument, match=re.escape(expected)):
        checked_bytes("payload", value)


def test_a_released_view_is_refused() -> None:
    """There is nothing left to read."""
    view = memoryview(b"abc")
    view.release()

    with pytest.raises(InvalidArgument, match="extra cannot be read"):
        checked_bytes("extra", view)


def test_a_size_counts_payload_and_extra_together() -> None:
    """Up to the limit and not a byte more; the remedy is named, the content is not."""
    checked_size(b"1234", b"56", 6)
    checked_size(b"1" * 10_000, b"", None)
    with pytest.raises(MessageTooLarge, match="7 bytes; this backend takes at most 6") as caught:
        checked_size(b"seven", b"56", 6)

    assert "seven" not in str(caught.value)


@pytest.mark.parametrize("delay", [timedelta(0), _US, MAX_DURATION])
def test_a_delay_reaches_from_nothing_to_ten_years(delay: timedelta) -> None:
    """Both ends included."""
    assert checked_delay(delay) == delay


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (-_US, "delay is -1 day, 23:59:59.999999; it cannot be negative"),
        (MAX_DURATION + _US, "delay is 3650 days, 0:00:00.000001; this backend takes at most"),
        (timedelta.max, "this backend takes at most 3650 days"),
        (5, "delay is a timedelta, not int"),
        (None, "delay is a timedelta, not NoneType"),
    ],
)
def test_a_bad_delay_is_refused(delay: object, expected: str) -> None:
    """Nothing is clamped (PUSH-7)."""
    with pytest.raises(InvalidArgument, match=re.escape(expected)):
        checked_delay(delay)


def test_a_delay_may_be_limited_further_by_the_backend() -> None:
    """The error names the backend's limit."""
    with pytest.raises(InvalidArgument, match="takes at most 0:15:00"):
        checked_delay(timedelta(minutes=16), timedelta(minutes=15))


@pytest.mark.parametrize("timeout", [_US, MAX_DURATION])
def test_a_lease_is_longer_than_nothing(timeout: timedelta) -> None:
    """Both ends included."""
    assert checked_visibility(timeout) == timeout


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        (timedelta(0), "visibility_timeout is 0:00:00; it must be longer than zero"),
        (-_US, "it must be longer than zero"),
        (MAX_DURATION + _US, "this backend takes at most 3650 days"),
        (30.0, "visibility_timeout is a timedelta, not float"),
    ],
)
def test_a_bad_lease_is_refused(timeout: object, expected: str) -> None:
    """Nothing is clamped (PUSH-7)."""
    with pytest.raises(InvalidArgument, match=re.escape(expected)):
        checked_visibility(timeout)


def test_an_extension_is_called_by_its_own_name() -> None:
    """The error speaks of what the caller passed."""
    with pytest.raises(InvalidArgument, match="extension is 0:00:00"):
        checked_visibility(timedelta(0), field="extension")


def test_a_wait_is_the_callers_or_the_drivers() -> None:
    """None asks for the default; longer than ten years is as long as that."""
    default = timedelta(seconds=20)

    assert checked_wait(None, default) == default
    assert checked_wait(timedelta(0), default) == timedelta(0)
    assert checked_wait(timedelta.max, default) == MAX_DURATION


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (-_US, "it cannot be negative, zero checks once"),
        (1, "wait is a timedelta or None, not int"),
    ],
)
def test_a_bad_wait_is_refused(wait: object, expected: str) -> None:
    """With what to pass instead."""
    with pytest.raises(InvalidArgument, match=expected):
        checked_wait(wait, timedelta(1))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "max_messages is 0; it is at least 1"),
        (-1, "max_messages is -1; it is at least 1"),
        (10_001, "max_messages is 10001; it is at most 10000"),
        (True, "max_messages is an int, not bool"),
        (1.0, "max_messages is an int, not float"),
        ("1", "max_messages is an int, not str"),
        (None, "max_messages is an int, not NoneType"),
    ],
)
def test_a_bad_count_is_refused(count: object, expected: str) -> None:
    """Below one, above the limit, or no whole number."""
    with pytest.raises(InvalidArgument, match=expected):
        checked_count("max_messages", count, at_most=10_000)


def test_a_count_has_an_upper_end_only_where_one_is_given() -> None:
    """A redrive of a million is fine."""
    assert checked_count("count", 1_000_000) == 1_000_000
    assert checked_count("max_messages", 10_000, at_most=10_000) == 10_000


def test_what_an_error_shows_is_short_and_harmless() -> None:
    """No escape sequence reaches a terminal, and no novel a log."""
    assert safe_repr("a\x1b[31m\u202e") == "'a\\x1b[31m\\u202e'"
    assert len(safe_repr("x" * 1_000)) < 80
    assert safe_repr("x" * 1_000).startswith("'xxx")
