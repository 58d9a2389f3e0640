"""Orders: a plugin that builds on two others."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from hypercube_jobs import Cron, Jobs
from hypercube_plugins import Plugin, Registration
from hypercube_plugins.commands import Commands
from shop_plugins._mail import Mailer
from shop_plugins._sms import Texter


@dataclass
class Confirm:
    """The job of this plugin."""

    order: int


@dataclass
class Summary:
    """A periodic job."""

    to: str


class Orders(Plugin):
    """It needs mail and SMS in versions that it knows."""

    name = "orders"
    version = "3.1"
    requires = ("mail>=1.2,<2", "sms~=2.0")

    def register(self, registration: Registration) -> None:
        """Declare jobs, and add a command if the application has any."""
        jobs = registration.own(Jobs)
        services = registration.services

        @jobs.handler("confirm")
        def confirm(job: Confirm) -> None:
            services.get(Mailer).send("ada@example.com", f"your order {job.order}")
            services.get(Texter).send("555-0100", f"order {job.order} is on its way")

        @jobs.handler("summary")
        def summary(job: Summary) -> None:
            services.get(Mailer).send(job.to, "all is well")

        jobs.schedule("daily", Cron("0 6 * * *"), Summary(to="boss@example.com"))

        if commands := registration.find_own(Commands):

            @commands.command()
            def place(order: int) -> None:
                """Place an order."""
                jobs.dispatch(Confirm(order))
                typer.echo(f"order {order} is placed")
