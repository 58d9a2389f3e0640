"""The record in a message's `extra`."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercube_jobs import Constant, Failure
from hypercube_jobs._record import Record

NOW = datetime(2026, 7, 1, tzinfo=UTC)
FAILURE = Failure("ValueError", "no", 2, NOW, "Traceback")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ours = st.sampled_from(
    [
        *("v", "retries", "timeout", "backoff", "dispatched_at"),
        *("deliveries", "free", "quarantined", "lost", "interrupted"),
        *("failures", "failure", "trace", "former"),
    ]
)
hostile = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(ours | st.text(max_size=5), json_values, max_size=8).map(
        lambda fields: json.dumps({"v": 1} | fields).encode()
    ),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [
            b"",
            b"[" * 100_000,
            b'{"v":1,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
            b'{"v":' + b"9" * 10_000 + b"}",
            b'{"v":1,"free":' + b"9" * 4_000 + b"}",
            b'{"v":1,"retries":1e999,"timeout":-0.0,"free":NaN}',
            b'{"v":1,"v":true}',
            b'\xef\xbb\xbf{"v":1}',
            '{"v":1}'.encode("utf-16"),
            b'{"v":1,"failure":{"type":"\\ud800","text":"\\u0000","attempt":1,"at":1}}',
            b'{"v":1,"failure":{"type":"a","text":"b","attempt":1,"at":1e300}}',
        ]
    ),
)


def whole() -> Record:
    record = Record.new(
        retries=4,
        timeout=timedelta(seconds=2),
        backoff=Constant(timedelta(seconds=3)),
        dispatched_at=NOW,
    )
    record.note_free()
    record.note_quarantine(3)
    record.note_interruption()
    record.note_failure(FAILURE)
    record.note_deliveries(5)
    return record


def test_a_record_comes_back_as_it_was_written() -> None:
    """Every part of the layout."""
    record = Record.read(whole().to_bytes())

    assert record.retries == 4
    assert record.timeout == timedelta(seconds=2)
    assert record.backoff == Constant(timedelta(seconds=3))
    assert record.dispatched_at == NOW
    assert (record.free, record.interrupted, record.failures) == (3, 1, 1)
    assert (record.deliveries, record.quarantined, record.lost) == (5, True, 3)
    assert record.failure == FAILURE
    assert record.former is None


def test_a_message_without_a_record_knows_nothing() -> None:
    """The handler's defaults are used then."""
    record = Record.read(b"")

    assert (record.retries, record.timeout, record.backoff) == (None, None, None)
    assert (record.free, record.interrupted, record.failures) == (0, 0, 0)
    assert (record.failure, record.former, record.dispatched_at) == (None, None, None)


@pytest.mark.parametrize("extra", [b"\x00\xff raw", b"{}", b'{"retries":3}', b"[1]", b'{"v":"1"}'])
def test_what_another_producer_wrote_is_kept_as_it_was(extra: bytes) -> None:
    """Under `former`, in base64, through any number of retries."""
    record = Record.read(extra)
    record.note_failure(FAILURE)
    again = Record.read(record.to_bytes())
    again.note_failure(FAILURE)

    assert Record.read(again.to_bytes()).former == extra
    assert json.loads(again.to_bytes())["former"] == base64.b64encode(extra).decode()
    assert again.retries is None


def test_unknown_keys_survive() -> None:
    """So do a later version's number and a trace context, whatever they hold."""
    extra = {"v": 3, "later": {"x": [1.5, None, 2**70]}, "trace": {"traceparent": "00-ab"}}
    record = Record.read(json.dumps(extra).encode())
    record.note_failure(FAILURE)
    record.start_anew()

    written = json.loads(record.to_bytes())
    assert {key: written[key] for key in extra} == extra


@given(extra=hostile)
def test_no_bytes_make_reading_or_writing_fail(extra: bytes) -> None:
    """Whoever wrote them: a worker must be able to give the message back."""
    record = Record.read(extra)
    counters = (record.deliveries, record.free, record.lost, record.interrupted, record.failures)
    for value in (record.retries, *counters):
        assert value is None or value >= 0
    record.note_quarantine(1)
    record.note_deliveries(3)
    assert record.free <= 3
    _ = (record.timeout, record.backoff, record.dispatched_at, record.failure, record.former)
    record.note_interruption()
    record.note_failure(FAILURE)

    written = record.to_bytes()
    assert written is not None
    assert Record.read(written).failures == record.failures
    record.start_anew()
    assert Record.read(record.to_bytes()).free == 0


@given(extra=hostile, limit=st.integers(0, 2_000))
def test_a_record_keeps_to_the_room_there_is(extra: bytes, limit: int) -> None:
    """Counting goes on as long as there is room for the counters."""
    record = Record.read(extra)
    record.note_failure(FAILURE)

    written = record.to_bytes(limit)
    if written is not None:
        assert len(written) <= limit
        assert Record.read(written).failures == record.failures
    else:
        assert len(record.essentials()) > limit


def test_the_least_needed_is_left_out_first() -> None:
    """Traceback, most of the text, the failure, former bytes, unknown keys; never a counter."""
    record = Record.read(b'{"v":1,"former":"' + b"QUJD" * 100 + b'","later":"' + b"x" * 50 + b'"}')
    record.note_failure(Failure("ValueError", "t" * 1_000, 1, NOW, "T" * 2_000))
    lost = []
    for limit in (10_000, 2_000, 800, 550, 200, 60):
        fields = json.loads(record.to_bytes(limit))
        failure = fields.get("failure", {})
        lost.append(
            (
                "traceback" in failure,
                len(failure.get("text", "")),
                "former" in fields,
                "later" in fields,
                fields["failures"],
            )
        )

    assert lost == [
        (True, 1_000, True, True, 1),
        (False, 1_000, True, True, 1),
        (False, 100, True, True, 1),
        (False, 0, True, True, 1),
        (False, 0, False, True, 1),
        (False, 0, False, False, 1),
    ]


def test_starting_anew_forgets_the_counters_and_keeps_the_failure() -> None:
    """ATT-2: people still see why it died, and a redriven message starts at 1."""
    record = whole()
    record.start_anew()

    again = Record.read(record.to_bytes())
    assert (again.free, again.interrupted, again.failures) == (0, 0, 0)
    assert (again.deliveries, again.quarantined, again.lost) == (0, False, 0)
    assert again.failure == FAILURE


def test_the_essentials_are_enough_to_go_on_counting() -> None:
    """All that the next worker decides by."""
    bare = Record.read(whole().essentials())

    assert (bare.retries, bare.timeout, bare.backoff) == (4, timedelta(seconds=2), whole().backoff)
    assert (bare.deliveries, bare.free, bare.quarantined, bare.lost) == (5, 3, True, 3)
    assert (bare.interrupted, bare.failures, bare.failure) == (1, 1, None)


def test_half_of_a_surrogate_pair_in_a_text_survives() -> None:
    """Errors quote such, and the fast parser of JSON refuses it."""
    record = whole()
    record.note_failure(Failure("ValueError", "no \ud800", 2, NOW, "Traceback \udcff"))
    extra = record.to_bytes()
    assert extra is not None

    again = Record.read(extra)
    assert again.failure == Failure("ValueError", "no \ud800", 2, NOW, "Traceback \udcff")
    assert (again.retries, again.failures, again.former) == (4, 2, None)


@given(st.dictionaries(ours | st.text(max_size=5), json_values, max_size=8))
def test_the_fast_parser_reads_what_the_other_does(fields: dict[str, object]) -> None:
    """Numbers and texts of any kind, in the very same types."""
    encoded = json.dumps({"v": 1} | fields | {"v": 1})

    assert repr(Record.read(encoded.encode())._fields) == repr(json.loads(encoded))
