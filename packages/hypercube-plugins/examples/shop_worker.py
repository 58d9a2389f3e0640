"""The shop's jobs for `hypercube work shop_worker:jobs`: the application is up in each process."""

from __future__ import annotations

import atexit

from shop import application, jobs

__all__ = ["jobs"]

application.boot()
atexit.register(application.shutdown)
