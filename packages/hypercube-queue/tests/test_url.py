"""Queue URLs: their parts, their options, and what they never give away."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from hypercube_queue import InvalidArgument, open_queue
from hypercube_queue.driver import QueueURL, URLOptions

_SECRET = "hunter2"


def test_the_parts_of_a_url_come_decoded() -> None:
    """Percent-escapes are how a password or a path holds what would end it."""
    url = QueueURL("postgresql+psycopg://us%40er:p%2Fw%23@db.example:5432/my%20db?schema=a%26b")

    assert (url.scheme, url.username, url.password) == ("postgresql+psycopg", "us@er", "p/w#")
    assert (url.hostname, url.port, url.path) == ("db.example", 5432, "/my db")
    assert url.options.text("schema", None) == "a&b"


def test_what_a_url_does_not_have_is_none() -> None:
    """Told apart from what is there and empty."""
    url = QueueURL("sqlite:///jobs.db")

    assert (url.username, url.password, url.hostname, url.port) == (None, None, None, None)
    assert url.path == "/jobs.db"
    assert QueueURL("redis://:@host").password == ""
    assert QueueURL("redis://[::1]:6379/0").hostname == "::1"


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("amqp://", [("localhost", 7)]),
        ("amqp://one", [("one", 7)]),
        ("amqp://one:1,two,three:3", [("one", 1), ("two", 7), ("three", 3)]),
        ("amqp://u:p,%40w@one,two:2/vhost?a=b,c", [("one", 7), ("two", 2)]),
        ("amqp://[::1]:1,two,[::2]:2,[::3]/", [("::1", 1), ("two", 7), ("::2", 2), ("::3", 7)]),
    ],
)
def test_a_url_can_name_several_hosts(url: str, addresses: list[tuple[str, int]]) -> None:
    """In their order; whatever else it has counts for all."""
    parts = QueueURL(url, several_hosts=True)

    assert parts.addresses(7) == addresses


def test_several_hosts_change_nothing_of_the_rest() -> None:
    """Credentials, path and options are read as they always are."""
    parts = QueueURL("amqp://us%40er:p,w@one:1,two:2/a%2Fb%40c?x=1,2", several_hosts=True)

    assert (parts.username, parts.password, parts.path) == ("us@er", "p,w", "/a/b@c")
    assert (parts.hostname, parts.port, parts.options.text("x", None)) == ("one", 1, "1,2")
    assert repr(QueueURL("amqp://u:p@one:1,two,three:3/v", several_hosts=True)) == (
        "amqp://u@one:1,two,three:3/v"
    )


@pytest.mark.parametrize(
    "url",
    [
        "amqp://one:1,two:2/",
        *(
            f"amqp://u:{_SECRET}@{hosts}/"
            for hosts in ("one,", "one,,two", "one,two:x", "one,two:99999", "one,[::1", "one,u:p@t")
        ),
    ],
)
def test_what_is_no_list_of_hosts_is_refused(url: str) -> None:
    """And so is a list where a driver takes one host only."""
    with pytest.raises(InvalidArgument, match="cannot be parsed") as caught:
        QueueURL(url, several_hosts=_SECRET in url)

    assert _SECRET not in _chain(caught.value)


def _chain(error: BaseException | None) -> str:
    """All that a log could print of an error."""
    text = ""
    while error is not None:
        text += f"{error} {error!r} {error.args} "
        error = error.__cause__ or error.__context__
    return text


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{_SECRET}@host:port/0",
        f"redis://user:{_SECRET}@host:99999/0",
        f"redis://user:{_SECRET}@[::1/0",
        f"redis://user:{_SECRET}@ho\u2100st/0",
        f"redis://user:{_SECRET}/x@host/0",
        f"redis://user:12/{_SECRET}@host/0",
        f"redis://user:12,{_SECRET}/x@host/0",
        f"redis://user:{_SECRET}#x@host/0",
        f"redis://user:12#{_SECRET}@host/0",
        f"redis://user:?{_SECRET}@host/0",
        f"redis://user:12?a=b&{_SECRET}@host/0",
        f"redis://user:{_SECRET}@host/0?nonsense=1",
        f"redis://user:{_SECRET}@host/0?twice=1&twice=2",
        f"redis:/user:{_SECRET}@host",
        f"user:{_SECRET}@host://0",
        f"user:{_SECRET}@[host",
        f"://user:{_SECRET}@host",
    ],
)
@pytest.mark.parametrize(
    "entrance",
    [QueueURL, partial(QueueURL, several_hosts=True), open_queue],
    ids=["QueueURL", "several_hosts", "open_queue"],
)
def test_no_error_gives_a_password_away(url: str, entrance: Callable[[str], object]) -> None:
    """However the URL is broken: not in the text, nor in what caused it (ERR-6)."""

    def use() -> None:
        opened = entrance(url)
        assert isinstance(opened, QueueURL)
        opened.options.refuse_unknown()
        raise InvalidArgument(repr(opened))  # nothing is wrong with it, so see how it is shown

    with pytest.raises(InvalidArgument) as caught:
        use()

    assert _SECRET not in _chain(caught.value)


def test_a_repr_hides_password_and_options() -> None:
    """What is left tells which queue it is."""
    url = QueueURL(f"redis://user:{_SECRET}@host:6379/0?token={_SECRET}")

    assert repr(url) == "redis://user@host:6379/0"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://host:port/0", "the redis URL cannot be parsed: is its port a number"),
        ("redis://host/0#x", "the redis URL has a part after '#'"),
        ("redis://host/0?a=1&a=2", "option 'a' is in the redis URL twice"),
        ("redis://host/0?a b=1", "the redis URL has an option whose name is no word"),
    ],
)
def test_a_broken_url_is_refused_with_the_remedy(url: str, expected: str) -> None:
    """Which part is broken, without showing it."""
    with pytest.raises(InvalidArgument, match=re.escape(expected)):
        QueueURL(url)


def _options(query: str) -> URLOptions:
    return URLOptions("redis", query)


def test_an_option_that_is_missing_has_its_default() -> None:
    """Whatever its type."""
    options = _options("")

    assert options.text("prefix", "app") == "app"
    assert options.integer("size", None) is None
    assert options.flag("create", True) is True
    assert options.duration("wait", timedelta(1)) == timedelta(1)
    assert options.choice("mode", "a", ("a", "b")) == "a"
    options.refuse_unknown()


def test_an_option_is_read_as_its_type() -> None:
    """Durations are seconds, with fractions."""
    options = _options("prefix=a+b%20c&size=-3&wait=1.5&mode=b&empty=")

    assert options.text("prefix", None) == "a b c"
    assert options.text("empty", "default") == ""
    assert options.integer("size", 0) == -3
    assert options.duration("wait", None) == timedelta(seconds=1.5)
    assert options.choice("mode", "a", ("a", "b")) == "b"
    options.refuse_unknown()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("true", "1", "YES", "on")),
        *((text, False) for text in ("false", "0", "No", "OFF")),
    ],
)
def test_a_flag_has_many_spellings(text: str, value: bool) -> None:
    """Those of configuration files."""
    assert _options(f"create={text}").flag("create", None) is value


@pytest.mark.parametrize(
    ("query", "read", "expected"),
    [
        (
            "n=x",
            lambda o: o.integer("n", 0),
            "option 'n' of the redis URL is 'x'; it takes a whole",
        ),
        ("n=1.5", lambda o: o.integer("n", 0), "is '1.5'; it takes a whole number"),
        ("n=", lambda o: o.flag("n", False), "is ''; it takes true or false"),
        ("n=maybe", lambda o: o.flag("n", False), "is 'maybe'; it takes true or false"),
        ("n=-1", lambda o: o.duration("n", None), "is '-1'; it takes a number of seconds, not neg"),
        ("n=nan", lambda o: o.duration("n", None), "is 'nan'; it takes a number of seconds"),
        ("n=inf", lambda o: o.duration("n", None), "is 'inf'; it takes a number of seconds"),
        ("n=1e300", lambda o: o.duration("n", None), "is '1e300'; it takes a number of seconds"),
        ("n=1m", lambda o: o.duration("n", None), "is '1m'; it takes a number of seconds"),
        ("n=c", lambda o: o.choice("n", "a", ("a", "b")), "is 'c'; it takes one of a, b"),
    ],
)
def test_a_bad_value_is_refused_by_name(
    query: str, read: Callable[[URLOptions], object], expected: str
) -> None:
    """With the value, and what would be one."""
    with pytest.raises(InvalidArgument, match=re.escape(expected)):
        read(_options(query))


def test_an_unknown_option_is_refused_with_the_likely_one() -> None:
    """And all that there are."""
    options = _options("poll_time=5")
    options.duration("poll_timeout", None)
    options.text("prefix", None)

    with pytest.raises(InvalidArgument) as caught:
        options.refuse_unknown()

    assert str(caught.value) == (
        "the redis URL has the unknown option 'poll_time'. Did you mean 'poll_timeout'? "
        "Known are: poll_timeout, prefix"
    )


def test_the_rest_goes_to_a_client_with_options_of_its_own() -> None:
    """And is unknown no longer."""
    options = _options("prefix=app&sslmode=require")
    options.text("prefix", None)

    assert options.rest() == {"sslmode": "require"}
    options.refuse_unknown()
