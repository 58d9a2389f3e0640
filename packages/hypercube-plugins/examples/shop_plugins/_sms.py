"""Text messages: much as mail, under another name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypercube_jobs import Jobs, Namespace
from hypercube_plugins import Plugin, Registration, Services
from shop_plugins._outbox import Outbox


@dataclass
class Text:
    """The job of this plugin."""

    number: str
    text: str


class Texter:
    """What other plugins use."""

    def __init__(self, jobs: Namespace) -> None:
        self._jobs = jobs

    def send(self, number: str, text: str) -> None:
        """Have it sent by a worker."""
        self._jobs.dispatch(Text(number, text))


class SMS(Plugin):
    """Its job is called `send`, as that of Mail is."""

    name = "sms"
    version = "2.0.1"

    def __init__(self, folder: Path) -> None:
        self._outbox = Outbox(folder / "sms.txt")

    def register(self, registration: Registration) -> None:
        """Offer the texter, and declare the job."""
        jobs = registration.own(Jobs)
        registration.provide(Texter).value(Texter(jobs))
        registration.provide(Outbox, name=self.name).value(self._outbox)

        @jobs.handler("send")
        def send(text: Text) -> None:
            self._outbox.write(f"{text.number}: {text.text}")

    def boot(self, services: Services) -> None:
        """Open what texts are written to."""
        services.get(Outbox, name=self.name).open()

    def shutdown(self, services: Services) -> None:
        """Close it."""
        services.get(Outbox, name=self.name).close()
