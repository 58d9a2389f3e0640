"""Emulators of Amazon SQS and DynamoDB."""

from __future__ import annotations

import http.client
import json
import urllib.request
from pathlib import Path
from typing import ClassVar

from tools.backends.kind import PROBE_TIMEOUT, Address, Kind, NotReady, Site


class _Emulator(Kind):
    """Takes any credentials."""

    username = "testing"
    password = "testing"  # noqa: S105 - any will do
    user = ""  # a Python may lie where others cannot go
    path: ClassVar[str]

    def _get(self, address: Address) -> tuple[http.client.HTTPMessage, bytes]:
        url = f"http://{address.host}:{address.port}{self.path}"
        try:
            with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT) as answer:
                return answer.headers, answer.read()
        except http.client.HTTPException as error:
            raise NotReady(repr(error)) from error


class Moto(_Emulator):
    """SQS and DynamoDB; it forgets everything when it stops."""

    name = "moto"
    title = "moto"
    image = "motoserver/moto:5"
    port = 5000
    programs = ("moto_server",)
    requirement = "moto[server]>=5,<6"
    path = "/moto-api/"

    def probe(self, address: Address) -> str:
        """It does not say its own version, but that of its web server."""
        headers, _ = self._get(address)
        return headers["Server"] or "?"

    def command(self, site: Site) -> list[str | Path]:
        return [site.program, "-H", "127.0.0.1", "-p", str(site.port)]


class Ministack(_Emulator):
    """A second one, by other authors; it forgets everything when it stops."""

    name = "ministack"
    title = "ministack"
    image = "ministackorg/ministack:1"
    port = 4566
    programs = ("ministack",)
    requirement = "ministack>=1,<2"
    path = "/_ministack/health"

    def probe(self, address: Address) -> str:
        _, body = self._get(address)
        try:
            return str(json.loads(body)["version"])
        except (ValueError, KeyError) as error:
            raise NotReady(repr(error)) from error

    def command(self, site: Site) -> list[str | Path]:
        return [site.program]

    def process_environment(self, site: Site) -> dict[str, str]:
        return {"GATEWAY_PORT": str(site.port)}
