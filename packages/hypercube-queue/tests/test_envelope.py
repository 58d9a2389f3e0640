"""The binary form for brokers that store one blob."""

from __future__ import annotations

import contextlib
import re
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercube_queue.driver import (
    MAX_ATTEMPT_BASE,
    MAX_ENVELOPE_OVERHEAD_BYTES,
    Envelope,
    UnreadableEnvelope,
    checked_envelope,
    decode_envelope,
    encode_envelope,
)

_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=63)
_ENVELOPES = st.builds(
    Envelope,
    queue_name=_NAMES,
    id=_NAMES,
    payload=st.binary(),
    extra=st.binary(),
    job_name=_NAMES,
    namespace=_NAMES,
    visibility_us=st.none() | st.integers(0, 2**63 - 1),
    attempt_base=st.integers(0, MAX_ATTEMPT_BASE),
)
_SAMPLE = Envelope("q", "m1", b"payload", b"extra", "job", "ns", 30_000_000, 2)


@given(_ENVELOPES)
def test_every_field_survives_the_way_there_and_back(envelope: Envelope) -> None:
    """Exactly (OWN-3)."""
    assert decode_envelope(encode_envelope(envelope)) == envelope


def test_the_format_of_version_1_never_changes() -> None:
    """Messages of the last release lie in somebody's broker."""
    assert encode_envelope(_SAMPLE).hex(" ", 1) == (
        "48 51 01 00 00 00 02 00 00 00 00 01 c9 c3 80 00 01 00 02 00 03 00 02 00 00 00 05 "
        "00 00 00 07 71 6d 31 6a 6f 62 6e 73 65 78 74 72 61 70 61 79 6c 6f 61 64"
    )


def test_what_an_envelope_adds_is_bounded() -> None:
    """Four names of 255 bytes and the header are all there is."""
    longest = Envelope(*["x" * 255] * 2, b"12", b"345", *["x" * 255] * 2, None)

    assert len(encode_envelope(longest)) == MAX_ENVELOPE_OVERHEAD_BYTES + 5


@pytest.mark.parametrize("length", range(len(encode_envelope(_SAMPLE))))
def test_an_envelope_that_is_cut_off_is_unreadable(length: int) -> None:
    """Wherever the cut is: half a payload must not look like a whole one."""
    with pytest.raises(UnreadableEnvelope, match=r"cut off after|do not start like an envelope"):
        decode_envelope(encode_envelope(_SAMPLE)[:length])


def test_an_envelope_with_something_behind_it_is_unreadable() -> None:
    """Whoever appended that did not know the format."""
    with pytest.raises(UnreadableEnvelope, match="2 bytes follow the end"):
        decode_envelope(encode_envelope(_SAMPLE) + b"!!")


@pytest.mark.parametrize("version", [0, 2, 255])
def test_a_version_from_the_future_is_named(version: int) -> None:
    """With the remedy, whatever follows it."""
    blob = bytearray(encode_envelope(_SAMPLE))
    blob[2] = version

    with pytest.raises(UnreadableEnvelope, match=f"version {version}, and this release reads"):
        decode_envelope(bytes(blob))


@pytest.mark.parametrize("blob", [b"", b"H", b"{}", b'{"job": 1}' * 10, b"\x00" * 100])
def test_foreign_bytes_are_unreadable(blob: bytes) -> None:
    """Another producer's message is told from ours by its start."""
    with pytest.raises(UnreadableEnvelope, match="do not start like an envelope"):
        decode_envelope(blob)


def test_a_name_that_is_not_utf_8_is_unreadable() -> None:
    """It could not be shown, nor sent back."""
    blob = encode_envelope(_SAMPLE).replace(b"job", b"j\xffb")

    with pytest.raises(UnreadableEnvelope, match="not UTF-8"):
        decode_envelope(blob)


@pytest.mark.parametrize("field", ["queue_name", "id", "job_name", "namespace"])
@pytest.mark.parametrize("bad", ["a\nb", "nul\x00", "x" * 256])
def test_where_others_write_a_name_that_no_push_takes_is_unreadable(field: str, bad: str) -> None:
    """It could be neither settled nor pushed again under its name."""
    blob = encode_envelope(replace(_SAMPLE, **{field: bad}))

    with pytest.raises(UnreadableEnvelope, match=f"invalid name: {field}"):
        checked_envelope(blob)


@pytest.mark.parametrize("field", ["queue_name", "id"])
def test_where_others_write_a_message_without_queue_or_id_is_unreadable(field: str) -> None:
    """Nothing would identify it."""
    with pytest.raises(UnreadableEnvelope, match=f"invalid name: {field} is empty"):
        checked_envelope(encode_envelope(replace(_SAMPLE, **{field: ""})))


@pytest.mark.parametrize("visibility_us", [0, 3650 * 86_400 * 1_000_000 + 1, 2**63 - 1])
def test_where_others_write_a_lease_that_no_push_takes_is_unreadable(visibility_us: int) -> None:
    """It is no duration that a message can have, and perhaps none that Python can."""
    with pytest.raises(UnreadableEnvelope, match=f"lease of {visibility_us} microseconds"):
        checked_envelope(encode_envelope(replace(_SAMPLE, visibility_us=visibility_us)))


def test_what_a_push_could_have_written_is_decoded_as_ever() -> None:
    """The checks change nothing."""
    sample = replace(_SAMPLE, visibility_us=None, job_name="", namespace="")

    assert checked_envelope(encode_envelope(sample)) == sample


@given(st.binary(max_size=80))
def test_any_bytes_are_an_envelope_or_unreadable(noise: bytes) -> None:
    """No other error comes out, so one broken message cannot stop a queue (POP-8)."""
    for blob in (noise, b"HQ\x01" + noise):
        with contextlib.suppress(UnreadableEnvelope):
            decode_envelope(blob)


def test_an_unreadable_envelope_shows_nothing_of_itself() -> None:
    """It may hold a payload (ERR-6)."""
    for blob in (b"secret", encode_envelope(_SAMPLE)[:3] + b"secret", b"HQ\x09secret" * 9):
        with pytest.raises(UnreadableEnvelope) as caught:
            decode_envelope(blob)
        assert "secret" not in str(caught.value)


def test_a_count_that_no_message_has_is_unreadable_and_is_never_written() -> None:
    """With the next delivery it would not fit into its four bytes."""
    blob = bytearray(encode_envelope(replace(_SAMPLE, attempt_base=MAX_ATTEMPT_BASE)))
    assert checked_envelope(bytes(blob)).attempt_base == MAX_ATTEMPT_BASE
    for forged in (MAX_ATTEMPT_BASE + 1, 2**32 - 1):
        blob[3:7] = forged.to_bytes(4, "big")
        with pytest.raises(UnreadableEnvelope, match=f"{forged} earlier deliveries"):
            checked_envelope(bytes(blob))
    for counted in (MAX_ATTEMPT_BASE + 1, 2**32, 2**70):
        written = encode_envelope(replace(_SAMPLE, attempt_base=counted))
        assert checked_envelope(written).attempt_base == MAX_ATTEMPT_BASE


@given(st.binary(max_size=60), st.binary(max_size=40))
def test_any_header_is_an_envelope_or_unreadable(header: bytes, rest: bytes) -> None:
    """What is read can be written again, whatever it claims."""
    with contextlib.suppress(UnreadableEnvelope):
        envelope = checked_envelope(b"HQ\x01" + header + rest)
        assert checked_envelope(encode_envelope(envelope)) == envelope


@given(
    st.integers(0, 2**32 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.text(max_size=5) | st.binary(max_size=5), min_size=4, max_size=4),
)
def test_any_fields_are_an_envelope_or_unreadable(
    attempt_base: int, visibility: int, names: list[str | bytes]
) -> None:
    """Numbers of every size, and names that no push takes: control characters, no UTF-8."""
    raw = [
        each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in names
    ]
    header = struct.pack(">Iq4HII", attempt_base, visibility, *map(len, raw), 0, 0)
    with contextlib.suppress(UnreadableEnvelope):
        envelope = checked_envelope(b"HQ\x01" + header + b"".join(raw))
        for name in (envelope.queue_name, envelope.id, envelope.job_name, envelope.namespace):
            assert not re.search(r"[\x00-\x1f\x7f]", name)
        assert envelope.attempt_base <= MAX_ATTEMPT_BASE
        assert checked_envelope(encode_envelope(envelope)) == envelope
