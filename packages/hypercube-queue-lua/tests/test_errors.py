"""Error replies of servers, as the contract calls them."""

from __future__ import annotations

import copy

import pytest

from hypercube_queue import BackendError, CapacityExceeded
from hypercube_queue_lua import server_error
from hypercube_queue_lua._errors import copy_error, unsent


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("BUSY Redis is busy running a script.", "does not end"),
        ("CLUSTERDOWN Hash slot not served", "served by nobody"),
        ("CROSSSLOT Keys in request don't hash to the same slot", "knows clusters"),
        ("HYPERCUBELAYOUT 2", "upgrade"),
        ("LOADING Redis is loading the dataset in memory", "loading"),
        ("MASTERDOWN Link with MASTER is down", "lost its primary"),
        ("MISCONF Redis is configured to save RDB snapshots", "disk"),
        ("MOVED 1 127.0.0.1:1", "knows clusters"),
        ("NOAUTH Authentication required.", "password"),
        ("NOPERM this user has no permissions", "may not"),
        ("NOREPLICAS Not enough good replicas to write.", "replicas"),
        ("READONLY You can't write against a read only replica.", "replica"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "moving"),
        ("WRONGPASS invalid username-password pair", "refuses"),
    ],
)
def test_what_a_server_refuses_is_told_in_plain_words(reply: str, told: str) -> None:
    """With the place, and a known outcome: nothing was changed (ERR-4)."""
    error = server_error(reply, "redis://host")
    assert isinstance(error, BackendError)
    assert str(error).startswith("redis://host: ")
    assert told in str(error)
    assert not error.outcome_unknown


@pytest.mark.parametrize("code", ["ASK", "MOVED"])
def test_a_redirection_is_told_in_other_words_to_who_knows_clusters(code: str) -> None:
    """Another client would not help there."""
    error = server_error(f"{code} 1 127.0.0.1:1", "redis+cluster://host", cluster=True)
    assert isinstance(error, BackendError)
    assert "knows clusters" not in str(error)
    assert not error.outcome_unknown


@pytest.mark.parametrize(
    "reply",
    [
        "ERR AUTH <password> called without any password configured for the default user.",
        "ERR Client sent AUTH, but no password is set",
    ],
)
def test_a_password_that_nobody_asks_for_is_told_from_a_missing_one(reply: str) -> None:
    """By what servers say since Redis 6, and what they said before."""
    assert "a password was given" in str(server_error(reply, "redis://host"))


def test_a_lack_of_memory_is_a_lack_of_capacity() -> None:
    """Worth repeating later, and nothing was stored (ERR-3)."""
    error = server_error("OOM command not allowed when used memory > 'maxmemory'.", "redis://host")
    assert isinstance(error, CapacityExceeded)
    assert "maxmemory" in str(error)


def test_arguments_that_a_server_quotes_are_not_repeated() -> None:
    """They are payloads (ERR-6)."""
    reply = "ERR unknown command 'EVALSHA', with args beginning with: 'sha' '9' 's3cret'"
    error = server_error(reply, "redis://host")
    assert isinstance(error, BackendError)
    assert "s3cret" not in str(error)


def test_an_unknown_reply_is_repeated_with_an_unknown_outcome() -> None:
    """It may have come from the middle of a script."""
    error = server_error("WRONGTYPE Operation against a key", "redis://host")
    assert isinstance(error, BackendError)
    assert "WRONGTYPE" in str(error)
    assert error.outcome_unknown


def test_items_that_failed_together_have_errors_of_their_own() -> None:
    """Equal in text, outcome and cause; what was never sent has a known outcome."""
    error = BackendError("no answer", outcome_unknown=True)
    error.__cause__ = TimeoutError()
    for other in (copy_error(error), unsent(error)):
        assert other is not error
        assert isinstance(other, BackendError)
        assert str(other) == "no answer"
        assert other.__cause__ is error.__cause__
    assert copy_error(error).outcome_unknown
    assert not unsent(error).outcome_unknown
    full = CapacityExceeded("full")
    assert isinstance(unsent(full), CapacityExceeded)
    assert copy.copy(full) is not full
