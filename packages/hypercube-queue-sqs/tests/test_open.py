"""Opening by URL: region, endpoint, credentials, and what errors show."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tools.strict_sqs import StrictSQS

from hypercube_queue import BackendError, BatchError, InvalidArgument, Message, open_queue
from hypercube_queue_sqs import SQSQueue

NOW = timedelta(0)
SECRET = "s3cr3t-Zq9"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of whoever runs the tests."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_everything_may_come_from_the_environment(
    strict: StrictSQS, monkeypatch: pytest.MonkeyPatch, open_: Callable[[str], SQSQueue]
) -> None:
    """Region, key and endpoint, by boto3's own names."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", strict.endpoint)
    open_("sqs://?ensure_queues=true").push(Message("work"))
    assert len(strict.requests("SendMessageBatch")) == 1


def test_a_queue_that_is_told_to_creates_nothing(
    strict: StrictSQS, open_: Callable[[str], SQSQueue]
) -> None:
    """Tools that look after a queue must not make one of a mistyped name."""
    queue = open_(f"sqs://k:s@eu-west-1?endpoint={strict.endpoint}&ensure_queues=true")
    queue.create_nothing()
    with pytest.raises(BackendError, match="QueueDoesNotExist"):
        queue.redrive("mistyped", 1)
    assert strict.requests("CreateQueue") == []


def test_a_profile_brings_region_and_key(
    strict: StrictSQS, tmp_path: Path, open_: Callable[[str], SQSQueue]
) -> None:
    """As in boto3."""
    (tmp_path / "config").write_text(
        "[profile shop]\nregion = eu-north-1\naws_access_key_id = k\naws_secret_access_key = s\n"
    )
    queue = open_(f"sqs://?profile=shop&endpoint={strict.endpoint}&ensure_queues=true")
    queue.push(Message("work"))
    assert queue._clients.get().sqs.meta.region_name == "eu-north-1"


def test_a_key_may_be_in_the_url(strict: StrictSQS, open_: Callable[[str], SQSQueue]) -> None:
    """Escaped, for secrets have slashes."""
    queue = open_(f"sqs://AKIA:a%2Fb%2Bc@us-west-2?endpoint={strict.endpoint}&ensure_queues=true")
    queue.push(Message("work"))
    found = queue._clients.get().sqs._request_signer._credentials
    assert (found.access_key, found.secret_key) == ("AKIA", "a/b+c")


def test_requests_are_set_up_so_that_calls_end_and_nothing_is_repeated(
    url: str, open_: Callable[[str], SQSQueue]
) -> None:
    """One attempt; polls may take twenty seconds longer."""
    queue = open_(f"{url}&operation_timeout=6&connections=5")
    queue.pop("work", wait=NOW)
    clients = queue._clients.get()
    usual, polls = clients.sqs.meta.config, clients.polls.meta.config
    assert usual.retries["total_max_attempts"] == polls.retries["total_max_attempts"] == 1
    assert (usual.connect_timeout, usual.read_timeout) == (3, 6)
    assert (polls.connect_timeout, polls.read_timeout) == (3, 26)
    assert usual.max_pool_connections == 5
    assert usual.tcp_keepalive


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("sqs://eu-west-1?endpoint=localhost:4566", "endpoint"),
        (f"sqs://eu-west-1?endpoint=http://user:{SECRET}@host", "endpoint"),
        ("sqs://eu-west-1?id_table=t&id_endpoint=ftp://x", "id_endpoint"),
        ("sqs://eu-west-1?endpoint=http://[::1", "endpoint"),
        (f"sqs://key:{SECRET}/rest@eu-west-1", "URL"),
        (f"sqs://key:{SECRET}@eu-west-1/path", "region"),
        ("sqs://eu-west-1:80", "region"),
        ("sqs://key@eu-west-1", "both parts"),
        ("sqs://?ensure_queues=perhaps", "ensure_queues"),
        ("sqs://?connections=0", "connections"),
        ("sqs://?connections=257", "connections"),
        ("sqs://?ids=some", "ids"),
        ("sqs://?prefix=a.b", "prefix"),
        ("sqs://?dead_letter_suffix=dead", "dead_letter_suffix"),
        ("sqs://?visibility_timeout=43200", "visibility_timeout"),
        ("sqs://?operation_timeout=0", "operation_timeout"),
        ("sqs://?ensure_queue=true", "Did you mean 'ensure_queues'"),
    ],
)
def test_a_bad_url_is_refused_by_what_is_wrong_with_it(url: str, named: str) -> None:
    """Before anything is opened, and without a secret."""
    with pytest.raises(InvalidArgument, match=named) as caught:
        open_queue(url)
    assert SECRET not in f"{caught.value!r} {caught.value.__context__!r}"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqs://eu-west-1?endpoint=http://127.0.0.1:9", "credentials"),
        ("sqs://k:s@eu-west-1?endpoint=http://127.0.0.1:9", "127.0.0.1:9"),
        ("sqs://k:s@?endpoint=http://127.0.0.1:9", "region"),
        ("sqs://?profile=unknown", "unknown"),
        ("sqs://k:s@eu-west-1?endpoint=http://nowhere.invalid", "nowhere.invalid"),
    ],
)
def test_what_cannot_be_sent_is_an_error_with_a_known_outcome(url: str, text: str) -> None:
    """No credentials, no region, nobody there: each in its words, at the first call."""
    with open_queue(url) as queue:
        with pytest.raises(BatchError) as caught:
            queue.push(Message("work"))
        error = caught.value.failed[0].error
        assert isinstance(error, BackendError)
        assert text in str(error)
        assert not error.outcome_unknown
        assert error.__cause__ is not None
        with pytest.raises(BackendError):
            queue.pop("work", wait=NOW)


def test_no_error_shows_a_secret(strict: StrictSQS, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the key of the URL nor a payload, in texts, reprs and log lines."""
    caplog.set_level("DEBUG")
    url = f"sqs://AKIA:{SECRET}@eu-west-1?endpoint={strict.endpoint}&ensure_queues=true"
    with open_queue(url) as queue:
        strict.faults.drop("SendMessageBatch", times=9)
        with pytest.raises(BatchError) as caught:
            queue.push(Message("work", SECRET.encode()))
        [failure] = caught.value.failed
        chain: BaseException | None = failure.error
        while chain is not None:
            assert SECRET not in f"{chain} {chain!r}"
            chain = chain.__cause__ or chain.__context__
        assert SECRET not in f"{queue!r} {caplog.text}"


def test_settings_that_boto3_refuses_are_an_invalid_argument() -> None:
    """It says so when a client is made, which is at the first call."""
    with (
        open_queue("sqs://k:s@eu-west-1?endpoint=http://no_such..host") as queue,
        pytest.raises(InvalidArgument, match="boto3 takes no such settings"),
    ):
        queue.pop("work", wait=NOW)


def test_a_client_of_another_kind_is_refused() -> None:
    """With what to do."""
    with pytest.raises(InvalidArgument, match="boto3 SQS client, not str"):
        SQSQueue("sqs://eu-west-1")


def test_a_forked_child_that_did_not_use_a_queue_may_close_it(
    url: str, open_: Callable[[str], SQSQueue]
) -> None:
    """It waits for none of the parent's threads, and the parent goes on."""
    queue = open_(url)
    queue.push(Message("work", b"0"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it has threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            queue.close()
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert [each.payload for each in queue.pop("work")] == [b"0"]


def test_queues_with_the_same_credentials_share_a_session(
    url: str, open_: Callable[[str], SQSQueue]
) -> None:
    """Making one reads thousands of files, and each would ask for credentials by itself."""
    for _ in range(2):
        queue = open_(url)
        queue.pop("work", wait=NOW)
    from hypercube_queue_sqs import _sessions

    assert len([key for key in _sessions._sessions if key[1].secret == "se/cr+et"]) == 1
