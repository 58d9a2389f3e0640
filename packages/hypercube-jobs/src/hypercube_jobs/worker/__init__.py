"""The worker: it takes jobs from queues, runs their handlers and settles the messages."""

from __future__ import annotations

from hypercube_jobs.worker._decision import MAX_FREE_INTERRUPTIONS
from hypercube_jobs.worker._ending import Ending
from hypercube_jobs.worker._process import process
from hypercube_jobs.worker._worker import Worker

__all__ = ["MAX_FREE_INTERRUPTIONS", "Ending", "Worker", "process"]
