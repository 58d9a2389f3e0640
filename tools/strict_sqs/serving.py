"""The server: the service's JSON protocol over HTTP."""

from __future__ import annotations

import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tools.strict_sqs.actions import Account, encoded
from tools.strict_sqs.errors import Refused
from tools.strict_sqs.faults import Fault, Faults

_TARGET = "AmazonSQS."
#: Requests that are remembered for tests to look at.
_REMEMBERED = 10_000


class StrictSQS:
    """A running server, on a free port of this machine unless told which."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self.faults = Faults()
        self.account = Account(self.faults)
        self._asked: list[tuple[str, dict[str, Any]]] = []
        self._server = _Server((host, port), _Handler)
        self._server.strict = self
        self.endpoint = f"http://{host}:{self._server.server_address[1]}"
        self.account.endpoint = self.endpoint
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="strict-sqs", daemon=True
        )
        self._thread.start()

    def requests(self, *actions: str) -> list[dict[str, Any]]:
        """What was asked for since the last `forget_requests`, of these actions or of all."""
        return [params for action, params in self._asked if not actions or action in actions]

    def forget_requests(self) -> None:
        """Remember from here on."""
        self._asked.clear()

    def remember(self, action: str, params: dict[str, Any]) -> None:
        """A request has come."""
        if len(self._asked) < _REMEMBERED:
            self._asked.append((action, params))

    def close(self) -> None:
        """Stop; what was stored is gone."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    strict: StrictSQS


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_POST(self) -> None:
        strict = self.server.strict
        length = int(self.headers.get("Content-Length", 0))
        params = json.loads(self.rfile.read(length) or b"{}")
        action = self.headers.get("X-Amz-Target", "").removeprefix(_TARGET)
        strict.remember(action, params)
        faults = strict.faults.due(action)
        try:
            answer = self._perform(action, params, faults)
        except Refused as error:
            self._late(faults)
            self._send(
                error.status,
                encoded({"__type": f"com.amazonaws.sqs#{error.code}", "message": error.text}),
                {"x-amzn-query-error": f"{error.query_code};Sender"},
            )
            return
        self._late(faults)
        if answer is None or any(each.kind == "forget" for each in faults):
            self.close_connection = True
            return
        self._send(200, encoded(answer), {})

    def do_GET(self) -> None:
        """Whoever looks whether it runs."""
        self._send(200, b"{}", {})

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests print what they need."""

    def _perform(
        self, action: str, params: dict[str, Any], faults: list[Fault]
    ) -> dict[str, Any] | None:
        if any(each.kind == "drop" for each in faults):
            return None
        if not self.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 Credential="):
            raise Refused("MissingAuthenticationToken", "Missing Authentication Token", status=403)
        for each in faults:
            if each.kind == "refuse" and each.error is not None:
                raise each.error
        return self.server.strict.account.perform(action, params, faults)

    def _late(self, faults: list[Fault]) -> None:
        seconds = self.server.strict.faults.delay
        seconds += sum(each.seconds for each in faults if each.kind == "slow")
        if seconds:
            time.sleep(seconds)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        try:
            self.send_response_only(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("x-amzn-RequestId", secrets.token_hex(8))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            # The client is gone. What it was to receive stays in flight, as with the service.
            self.close_connection = True
