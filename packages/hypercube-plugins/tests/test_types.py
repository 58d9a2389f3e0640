"""What a type checker makes of the package as it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
from typing import Protocol, assert_type

from hypercube_plugins import (
    Application, AsyncApplication, AsyncPlugin, Declaration, Plugin, Registration, Services,
)


class Sender(Protocol):
    def send(self) -> None: ...


class Mailer:
    def send(self) -> None: ...


class Part: ...


class Parts:
    def under(self, namespace: str) -> Part:
        return Part()


def make_part(services: Services) -> Part:
    return Part()


class Mail(Plugin):
    name = "mail"
    version = "1"

    def register(self, registration: Registration) -> None:
        registration.provide(Sender).value(Mailer())
        registration.provide(Mailer).factory(lambda services: Mailer())
        assert_type(registration.own(Parts), Part)

    def boot(self, services: Services) -> None:
        assert_type(services.get(Sender), Sender)
        assert_type(services.find(Mailer, name="x"), Mailer | None)


class Shop(AsyncPlugin):
    name = "shop"
    version = "1"
    requires = ["mail>=1"]

    async def boot(self, services: Services) -> None: ...


with Application(Mail()) as application:
    assert_type(application, Application)
    assert_type(application.order(), list[Declaration])
other = AsyncApplication(Mail(), Shop())
"""


def _checked(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy_cache", "program.py"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )


def test_an_application_is_checked_against_our_types(tmp_path: Path) -> None:
    """Services come back as the type they were asked by, Protocols too, and parts as theirs."""
    done = _checked(_PROGRAM, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


#: Lines that are wrong, and what is said about each.
_SLIPS = {
    "Application(Shop())": 'has incompatible type "Shop"; expected "Plugin"',
    "Application(Mail)": 'has incompatible type "type[Mail]"; expected "Plugin"',
    "application.provide(Mailer).value(Part())": 'has incompatible type "Part"; expected "Mailer"',
    "application.provide(Sender).value(Part())": 'has incompatible type "Part"; expected "Sender"',
    "application.provide(Mailer).factory(make_part)": "has incompatible type",
    "application.services.get(Mailer).receive()": '"Mailer" has no attribute "receive"',
    "forgotten: int = other.boot()": "Incompatible types in assignment",
}


def test_slips_are_found_by_the_type_checker(tmp_path: Path) -> None:
    """Before the program runs."""
    done = _checked("\n".join([_PROGRAM, *_SLIPS]), tmp_path)

    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == len(_SLIPS), done.stdout
    for error, text in zip(errors, _SLIPS.values(), strict=True):
        assert text in error
