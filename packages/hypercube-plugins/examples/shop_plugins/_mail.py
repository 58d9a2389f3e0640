"""Mail: a service for other plugins, and the job behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from hypercube_jobs import Cron, Jobs, Namespace
from hypercube_plugins import Plugin, Registration, Services
from hypercube_plugins.commands import Commands
from shop_plugins._outbox import Outbox


@dataclass
class Letter:
    """The job of this plugin."""

    to: str
    text: str


@dataclass
class Tidy:
    """A periodic job."""

    keep: int


class Mailer:
    """What other plugins use."""

    def __init__(self, jobs: Namespace) -> None:
        self._jobs = jobs

    def send(self, to: str, text: str) -> None:
        """Have it sent by a worker."""
        self._jobs.dispatch(Letter(to, text))


class Mail(Plugin):
    """Its job is called `send`, as that of SMS is: each lives under its plugin's name."""

    name = "mail"
    version = "1.2.0"

    def __init__(self, folder: Path) -> None:
        self._outbox = Outbox(folder / "mail.txt")

    def register(self, registration: Registration) -> None:
        """Offer the mailer, declare jobs, and add a command if the application has any."""
        jobs = registration.own(Jobs)
        registration.provide(Mailer).value(Mailer(jobs))
        registration.provide(Outbox, name=self.name).value(self._outbox)

        @jobs.handler("send")
        def send(letter: Letter) -> None:
            self._outbox.write(f"To {letter.to}: {letter.text}")

        @jobs.handler("tidy")
        def tidy(job: Tidy) -> None:
            self._outbox.keep(job.keep)

        jobs.schedule("daily", Cron("0 6 * * *"), Tidy(keep=1000))

        if commands := registration.find_own(Commands):

            @commands.command()
            def sent() -> None:
                """Show what was sent."""
                typer.echo("\n".join(self._outbox.lines()))

    def boot(self, services: Services) -> None:
        """Open what letters are written to."""
        services.get(Outbox, name=self.name).open()

    def shutdown(self, services: Services) -> None:
        """Close it."""
        services.get(Outbox, name=self.name).close()
