"""The message: its defaults, and what it shows of itself."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest

from hypercube_queue import MAX_DURATION, MAX_NAME_BYTES, Message


def test_only_the_queue_must_be_named() -> None:
    """Everything else has a default that push accepts."""
    message = Message("billing")

    assert {field.name: getattr(message, field.name) for field in fields(message)} == {
        "queue_name": "billing",
        "payload": b"",
        "job_name": "",
        "namespace": "",
        "id": "",
        "extra": b"",
        "delay": timedelta(0),
        "visibility_timeout": None,
        "attempt": 0,
        "driver_data": None,
    }


def test_a_repr_shows_neither_contents_nor_the_delivery() -> None:
    """A log line with a message in it must give nothing away (ERR-6)."""
    message = Message("billing", b"secret-1", extra=b"secret-2", driver_data="secret-3", id="m1")

    assert "secret" not in repr(message)
    assert "billing" in repr(message)
    assert "m1" in repr(message)


def test_a_message_has_slots() -> None:
    """A misspelt field is an error and not a silent addition."""
    with pytest.raises(AttributeError):
        Message("billing").dealy = timedelta(1)


def test_messages_are_equal_by_content_whatever_delivered_them() -> None:
    """`driver_data` identifies a delivery and is no part of the message."""
    assert Message("billing", b"1", driver_data=1) == Message("billing", b"1", driver_data=2)
    assert Message("billing", b"1") != Message("billing", b"2")


def test_limits_are_those_of_the_contract() -> None:
    """Ten years, and 255 bytes."""
    assert timedelta(days=3650) == MAX_DURATION
    assert MAX_NAME_BYTES == 255
