"""URLs, and the parameters that they become."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from datetime import timedelta

import pytest
from pika import ConnectionParameters
from tools.backends import server

from hypercube_queue import BackendError, InvalidArgument, Message, open_queue
from hypercube_queue_rabbitmq import RabbitMQQueue


def _parameters(url: str) -> ConnectionParameters:
    queue = open_queue(url)
    assert isinstance(queue, RabbitMQQueue)
    assert len(queue._places) == 1
    return queue._places[0]


@pytest.mark.parametrize(
    ("url", "vhost"),
    [
        ("amqp://host", "/"),
        ("amqp://host/", "/"),
        ("amqp://host/%2F", "/"),
        ("amqp://host/jobs", "jobs"),
        ("amqp://host/a%2Fb", "a/b"),
        ("amqp://host/%C3%A9", "é"),
    ],
)
def test_the_path_is_the_vhost(url: str, vhost: str) -> None:
    """As other clients of AMQP read it."""
    assert _parameters(url).virtual_host == vhost


def test_a_url_says_where_and_as_whom() -> None:
    """With percent-escapes decoded."""
    parameters = _parameters("amqp://us%40er:p%2Fw@[::1]:1234/v?heartbeat=7")

    assert (parameters.host, parameters.port, parameters.heartbeat) == ("::1", 1234, 7)
    assert (parameters.credentials.username, parameters.credentials.password) == ("us@er", "p/w")
    assert parameters.ssl_options is None


def test_without_a_word_of_it_the_broker_s_defaults_count() -> None:
    """The guest of the broker on this machine, on the port that is registered."""
    parameters = _parameters("amqp://")

    assert (parameters.host, parameters.port) == ("localhost", 5672)
    assert (parameters.credentials.username, parameters.credentials.password) == ("guest", "guest")


def test_amqps_is_another_port_and_checks_the_name() -> None:
    """TLS as it should be, unless the URL says otherwise."""
    parameters = _parameters("amqps://host")
    lenient = _parameters("amqps://host?ssl_check_hostname=false")

    assert (parameters.port, parameters.ssl_options.server_hostname) == (5671, "host")
    assert parameters.ssl_options.context.check_hostname
    assert not lenient.ssl_options.context.check_hostname
    for context in (parameters.ssl_options.context, lenient.ssl_options.context):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_several_hosts_have_all_else_in_common() -> None:
    """Each is checked by its own name where there is TLS."""
    with open_queue("amqps://us:pw@one,two:1,[::1]:2/v?heartbeat=7") as queue:
        assert isinstance(queue, RabbitMQQueue)
        places = queue._places

    assert [(each.host, each.port) for each in places] == [("one", 5671), ("two", 1), ("::1", 2)]
    assert [each.ssl_options.server_hostname for each in places] == ["one", "two", "::1"]
    assert {
        (each.virtual_host, each.credentials.username, each.credentials.password, each.heartbeat)
        for each in places
    } == {("v", "us", "pw", 7)}


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("amqp://host?queue_type=stream", "queue_type"),
        ("amqp://host?declare=perhaps", "declare"),
        ("amqp://host?heartbeat=-1", "heartbeat"),
        ("amqp://host?heartbeat=soon", "heartbeat"),
        ("amqp://host?operation_timeout=0", "operation_timeout"),
        ("amqp://host?ssl_ca_certs=x", "ssl_ca_certs"),
        ("amqps://host?ssl_ca_certs=/no/such/file", "ssl_ca_certs"),
        ("amqps://host?ssl_keyfile=/no/such/file", "without ssl_certfile"),
        ("amqp+pika://host", "scheme"),
        ("amqp://one,two:x", "parsed"),
        ("amqp://user:s/cret@host", "password escaped"),
    ],
)
def test_a_bad_option_is_refused_by_name(url: str, named: str) -> None:
    """Before anything is opened."""
    with pytest.raises(InvalidArgument, match=named):
        open_queue(url)


@pytest.mark.parametrize("parameters", ["amqp://host", [ConnectionParameters(), "amqp://host"], []])
def test_parameters_of_another_kind_are_refused(parameters: object) -> None:
    """With a word on what is taken."""
    with pytest.raises(
        InvalidArgument, match=r"ConnectionParameters or several, not str|are empty"
    ):
        RabbitMQQueue(parameters)


def test_the_caller_s_parameters_stay_as_they_are() -> None:
    """The queue has a copy, with the time limits that it needs."""
    parameters = ConnectionParameters("127.0.0.1", 1, blocked_connection_timeout=5)
    with (
        RabbitMQQueue(parameters, operation_timeout=timedelta(seconds=2)) as queue,
        pytest.raises(BackendError),
    ):
        queue.pop("mail")

    assert parameters.blocked_connection_timeout == 5
    assert parameters.client_properties is None


def test_nobody_listens() -> None:
    """The error comes at once, says so, and is certain."""
    begun = time.monotonic()
    with (
        open_queue("amqp://127.0.0.1:1/") as queue,
        pytest.raises(BackendError, match="no connection: ConnectionRefusedError") as caught,
    ):
        queue.pop("mail")

    assert not caught.value.outcome_unknown
    assert time.monotonic() - begun < 10


def test_nobody_listens_at_any_of_several() -> None:
    """The error names them all."""
    with (
        open_queue("amqp://127.0.0.1:1,127.0.0.1:2/") as queue,
        pytest.raises(BackendError, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2 .*Refused") as caught,
    ):
        queue.pop("mail")

    assert not caught.value.outcome_unknown


@pytest.mark.server("rabbitmq")
def test_a_broker_that_is_not_there_is_passed_over(
    prefix: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several hosts the first that answers counts; the log names the others."""
    monkeypatch.setattr("random.randrange", lambda _: 0)
    place = server("rabbitmq")
    caplog.set_level(logging.WARNING, "hypercube_queue_rabbitmq")
    url = place.url("amqp", prefix=prefix).replace("@", "@127.0.0.1:1,")
    with open_queue(url) as queue:
        queue.push(Message("mail", b"hello"))
        (popped,) = queue.pop("mail", wait=timedelta(seconds=5))
        queue.ack(popped)

    assert popped.payload == b"hello"
    [logged] = {r.getMessage() for r in caplog.records if r.name == "hypercube_queue_rabbitmq"}
    assert logged.startswith("127.0.0.1:1 is not reached: ConnectionRefusedError: ")
    assert logged.endswith("; trying the next host")


@pytest.mark.server("rabbitmq")
def test_a_broker_that_says_nothing_leaves_time_for_the_next(prefix: str) -> None:
    """It takes connections and never greets: the call still ends well, within its time limit."""
    place = server("rabbitmq")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = place.url("amqp", prefix=prefix, operation_timeout=6)
        with open_queue(url.replace("@", f"@127.0.0.1:{port},")) as queue:
            queue.push(Message("mail", b""))
            assert len(queue.pop("mail", wait=timedelta(seconds=5))) == 1


@pytest.mark.server("rabbitmq")
def test_a_wrong_password_is_said_and_not_shown() -> None:
    """Whoever reads the log knows what to do, and nothing more."""
    place = server("rabbitmq")
    with (
        open_queue(f"amqp://{place.username}:s3cret@{place.host}:{place.port}/") as queue,
        pytest.raises(BackendError, match="refused the user name or the password") as caught,
    ):
        queue.pop("mail")
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "s3cret" not in f"{shown} {shown!r}"
        shown = shown.__cause__


@pytest.mark.server("rabbitmq")
def test_a_vhost_that_is_not_there_is_said() -> None:
    """It is the commonest mistake in such a URL."""
    with (
        open_queue(server("rabbitmq").url("amqp", "nowhere")) as queue,
        pytest.raises(BackendError, match="vhost"),
    ):
        queue.pop("mail")
