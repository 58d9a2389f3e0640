"""Hypercube's queue in the memory of one process."""

from __future__ import annotations

from hypercube_queue_memory.__about__ import __version__
from hypercube_queue_memory._queue import MemoryQueue
from hypercube_queue_memory._store import MemoryStore

__all__ = ["MemoryQueue", "MemoryStore", "__version__"]
