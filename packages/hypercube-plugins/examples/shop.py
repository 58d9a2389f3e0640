"""An application of three plugins, with jobs and commands.

    python shop.py orders place 7
    python shop.py work
    python shop.py mail sent

Its files are in the current folder, or in that of the environment variable SHOP_FOLDER.
"""

from __future__ import annotations

import os
from pathlib import Path

from shop_plugins import SMS, Mail, Orders

from hypercube_jobs import Jobs, Worker
from hypercube_plugins import Application
from hypercube_plugins.commands import Commands
from hypercube_queue import open_queue

FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))

jobs = Jobs(open_queue(f"sqlite:///{FOLDER / 'shop.db'}"))

# Whatever the order here, orders come last: they require the other two.
application = Application(Orders(), Mail(FOLDER), SMS(FOLDER))
# This line lets plugins contribute jobs, and the next one commands.
application.provide(Jobs).value(jobs)
commands = Commands(application, help="A shop.")


@commands.command()
def work() -> None:
    """Run jobs until none is left."""
    Worker(jobs, stop_when_empty=True).run()


application.setup()

if __name__ == "__main__":
    commands()
