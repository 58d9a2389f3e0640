"""Hypercube's queue on Redis and Valkey, through redis-py: standalone, Sentinel, cluster."""

from __future__ import annotations

from hypercube_queue_redis.__about__ import __version__
from hypercube_queue_redis._queue import RedisQueue

__all__ = ["RedisQueue", "__version__"]
