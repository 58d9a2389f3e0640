"""Hypercube's queue on Valkey and Redis, through Valkey GLIDE: standalone and cluster."""

from __future__ import annotations

from hypercube_queue_valkey.__about__ import __version__
from hypercube_queue_valkey._queue import ValkeyQueue

__all__ = ["ValkeyQueue", "__version__"]
