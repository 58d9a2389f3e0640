"""Finding the driver of a URL."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest

from hypercube_queue import InvalidArgument, QueueError, open_queue
from hypercube_queue_memory import MemoryQueue


def _fake_driver(url: str) -> MemoryQueue:
    queue = MemoryQueue()
    queue.url = url
    return queue


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretends that exactly these entry points `scheme="module:function"` are installed."""
    module = ModuleType("made_up_driver")
    module.from_url = _fake_driver
    module.of_nothing = lambda _url: None
    monkeypatch.setitem(sys.modules, "made_up_driver", module)

    def install(*points: tuple[str, str]) -> None:
        installed = EntryPoints(EntryPoint(*point, "hypercube.drivers") for point in points)
        monkeypatch.setattr(importlib.metadata, "entry_points", installed.select)

    return install


def test_the_driver_of_the_scheme_gets_the_whole_url(
    install: Callable[..., None],
) -> None:
    """Options and all (LIFE-3)."""
    install(("made-up", "made_up_driver:from_url"))

    assert open_queue("made-up://host/x?y=z").url == "made-up://host/x?y=z"


def test_a_real_driver_is_found_by_its_entry_point() -> None:
    """As it is installed here."""
    with open_queue("memory://") as queue:
        assert isinstance(queue, MemoryQueue)


def test_a_scheme_is_found_whatever_its_case(install: Callable[..., None]) -> None:
    """As schemes of URLs are."""
    install(("made-up", "made_up_driver:from_url"))

    assert open_queue("Made-Up://host").url == "Made-Up://host"


def test_a_scheme_with_a_client_falls_back_to_the_bare_one(
    install: Callable[..., None],
) -> None:
    """postgresql+psycopg is found under postgresql, unless somebody offers it as it stands."""
    install(("postgresql", "made_up_driver:from_url"), ("redis+cluster", "made_up_driver:from_url"))

    assert open_queue("postgresql+psycopg://h").url == "postgresql+psycopg://h"
    assert open_queue("redis+cluster://h").url == "redis+cluster://h"
    with pytest.raises(InvalidArgument, match="no installed driver offers the scheme 'redis'"):
        open_queue("redis://h")


_SQL = "pip install 'hypercube-queue-sql[postgresql]' has it"
_AMQP = "pip install 'hypercube-queue-rabbitmq' has it"
_OTHERS = (
    "amqp, amqps, mariadb, memory, mysql, postgresql, redis, rediss, sqlite, sqs, valkey, valkeys"
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///x.db", "pip install 'hypercube-queue-sql'"),
        ("postgresql+psycopg://h", "pip install 'hypercube-queue-sql[postgresql]'"),
        ("mariadb://h", "pip install 'hypercube-queue-sql[mysql]'"),
        ("rediss://h", "pip install 'hypercube-queue-redis'"),
        ("valkey+cluster://h", "pip install 'hypercube-queue-valkey'"),
        ("sqs://eu-west-1", "pip install 'hypercube-queue-sqs'"),
        ("amqp://h", "pip install 'hypercube-queue-rabbitmq'"),
        ("memory://", "pip install 'hypercube-queue-memory'"),
        ("postgres://h", f"did you mean 'postgresql://'? {_SQL}"),
        ("postgres+psycopg://h", f"did you mean 'postgresql://'? {_SQL}"),
        ("rabbitmq://h", f"did you mean 'amqp://'? {_AMQP}"),
        ("pyamqp://h", f"did you mean 'amqp://'? {_AMQP}"),
        ("filse://h", "did you mean 'files://'?"),
        ("mongodb://h", f"installed are drivers for files; there are others for {_OTHERS}"),
        ("kafka://h", f"installed are drivers for files; there are others for {_OTHERS}"),
    ],
)
def test_an_unknown_scheme_says_what_to_install(
    install: Callable[..., None], url: str, expected: str
) -> None:
    """The distribution where we know one, else what there is (LIFE-3)."""
    install(("files", "made_up_driver:from_url"))
    scheme = url.partition("://")[0]

    with pytest.raises(InvalidArgument) as caught:
        open_queue(url)

    assert str(caught.value) == f"no installed driver offers the scheme '{scheme}': {expected}"


def test_with_no_driver_at_all_none_is_listed(install: Callable[..., None]) -> None:
    """An empty list would read like a slip."""
    install()

    with pytest.raises(InvalidArgument, match="installed are drivers for none; there are others"):
        open_queue("kafka://h")


def test_two_drivers_of_one_scheme_are_refused(install: Callable[..., None]) -> None:
    """Which one answers must not depend on the order of installation."""
    install(("made-up", "made_up_driver:from_url"), ("made-up", "another:from_url"))

    with pytest.raises(InvalidArgument) as caught:
        open_queue("made-up://h")

    assert str(caught.value) == (
        "several installed drivers offer the scheme 'made-up': another:from_url, "
        "made_up_driver:from_url; uninstall all but one, or construct the queue from its class"
    )


def test_one_driver_that_is_seen_twice_is_one(install: Callable[..., None]) -> None:
    """A folder that is on the path twice shows its distributions twice."""
    install(*[("made-up", "made_up_driver:from_url")] * 2)

    assert open_queue("made-up://h").url == "made-up://h"


def test_an_import_error_of_a_driver_comes_out_as_it_is(install: Callable[..., None]) -> None:
    """It says what is missing better than we could."""
    install(("made-up", "not_there_at_all:from_url"))

    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        open_queue("made-up://h")


def test_a_driver_that_returns_no_queue_is_named(install: Callable[..., None]) -> None:
    """Whoever maintains it will want to know."""
    install(("made-up", "made_up_driver:of_nothing"))

    with pytest.raises(QueueError, match="scheme 'made-up' in made_up_driver:of_nothing returned"):
        open_queue("made-up://h")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "a queue URL starts with a scheme, such as 'sqlite:///jobs.db'"),
        ("jobs.db", "a queue URL starts with a scheme"),
        ("sqlite:/jobs.db", "a queue URL starts with a scheme"),
        ("://host", "a queue URL starts with a scheme"),
        ("7up://host", "a queue URL starts with a scheme"),
        (None, "a queue URL is a str such as 'sqlite:///jobs.db', not NoneType"),
        (b"memory://", "a queue URL is a str such as 'sqlite:///jobs.db', not bytes"),
    ],
)
def test_what_is_no_queue_url_is_refused(url: object, expected: str) -> None:
    """With an example, and without showing what may hold a password."""
    with pytest.raises(InvalidArgument, match=re.escape(expected)):
        open_queue(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://?poll_timout=5", "unknown option 'poll_timout'. Did you mean 'poll_timeout'?"),
        ("memory://?poll_timeout=soon", "option 'poll_timeout' of the memory URL is 'soon'"),
        ("memory://?visibility_timeout=0", "visibility_timeout is 0:00:00"),
        ("memory://host:5", "a memory URL is memory:// or memory://name"),
    ],
)
def test_a_driver_refuses_options_it_does_not_know(url: str, expected: str) -> None:
    """And values it cannot use, by name."""
    with pytest.raises(InvalidArgument, match=re.escape(expected)):
        open_queue(url)


def test_the_contract_is_imported_without_what_most_users_never_need() -> None:
    """Asyncio and importlib.metadata come with their first use, and no dependency ever does."""
    program = (
        "import sys; bare = set(sys.modules); import hypercube_queue, hypercube_queue.driver\n"
        "slow = {'asyncio', 'importlib.metadata', 'concurrent.futures', 'typing_extensions'}\n"
        "print(sorted(slow & set(sys.modules)))\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - bare}"
        " - sys.stdlib_module_names - {'hypercube_queue'}))\n"
        "from hypercube_queue import AsyncQueue\n"
        "print('asyncio' in sys.modules, AsyncQueue.__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
    )

    assert done.stdout.splitlines() == ["[]", "[]", "True AsyncQueue"]


def test_a_name_that_the_contract_does_not_have_is_an_attribute_error() -> None:
    """As of any module."""
    import hypercube_queue

    with pytest.raises(AttributeError, match="module 'hypercube_queue' has no attribute 'Qeue'"):
        _ = hypercube_queue.Qeue
