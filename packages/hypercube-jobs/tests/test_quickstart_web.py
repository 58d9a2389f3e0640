"""The quickstart's requests for web addresses."""

from __future__ import annotations

import importlib
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "examples"))
link_check = importlib.import_module("link_check")


class Site(ThreadingHTTPServer):
    """Answers every path with the statuses that it begins with, one after another."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.seen: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Page(BaseHTTPRequestHandler):
    server: Site

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.server.seen.append(f"{self.command} {self.path}")
        statuses = self.path.split("/")[1].split("-")
        asked = sum(seen.endswith(f" {self.path}") for seen in self.server.seen)
        status = int(statuses[min(asked, len(statuses)) - 1])
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/200/target" if "to-target" in self.path else self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a test's output is its failures."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "requests"),
    [
        ("/200", ["HEAD /200"]),
        ("/204", ["HEAD /204"]),
        ("/405-200", ["HEAD /405-200", "GET /405-200"]),
        ("/501-200", ["HEAD /501-200", "GET /501-200"]),
        ("/403-200", ["HEAD /403-200", "GET /403-200"]),
        ("/200/größe?a=ü", ["HEAD /200/gr%C3%B6%C3%9Fe?a=%C3%BC"]),
        ("/200/a%20b#c", ["HEAD /200/a%20b"]),
    ],
)
def test_an_address_that_answers_is_in_order(site: Site, path: str, requests: list[str]) -> None:
    """HEAD is enough, and GET is asked where a server knows no HEAD."""
    assert link_check.why_unwanted(site.address + path) is None
    assert site.seen == requests


def test_redirects_are_followed(site: Site) -> None:
    """A moved page is in order when its new place is."""
    assert link_check.why_unwanted(f"{site.address}/301/to-target") is None
    assert [seen.split()[1] for seen in site.seen] == ["/301/to-target", "/200/target"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/404", "status 404 Not Found"),
        ("/410", "status 410 Gone"),
        ("/405", "status 405 Method Not Allowed"),
        ("/301", "status 301 Moved Permanently"),
        ("/499", "status 499"),
    ],
)
def test_an_address_that_is_gone_stays_gone(site: Site, path: str, reason: str) -> None:
    """4xx and redirects without end are reasons, since asking again changes nothing."""
    assert link_check.why_unwanted(site.address + path) == reason


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/429", "status 429 Too Many Requests"),
        ("/500", "status 500 Internal Server Error"),
        ("/503", "status 503 Service Unavailable"),
        ("/501", "status 501 Not Implemented"),
    ],
)
def test_a_busy_server_is_worth_asking_again(site: Site, path: str, reason: str) -> None:
    """429 and 5xx say nothing about the page."""
    with pytest.raises(link_check.Unreachable, match=reason):
        link_check.why_unwanted(site.address + path)


def test_no_connection_is_worth_trying_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is down may come back."""
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with pytest.raises(link_check.Unreachable, match="no connection"):
        link_check.why_unwanted(f"http://127.0.0.1:{port}/")


def test_a_silent_server_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out is worth trying again, and holds no worker for long."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(sys.modules["link_check._web"], "TIMEOUT_S", 0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(link_check.Unreachable, match="no answer"):
            link_check.why_unwanted(address)


@pytest.mark.parametrize(
    "address", ["http://", "http://[::1", "http://a:port/", f"http://{'a' * 70}.example/"]
)
def test_what_is_no_address_is_not_asked_for(address: str) -> None:
    """A malformed address is broken for good."""
    assert link_check.why_unwanted(address) == "it is not a valid address"
