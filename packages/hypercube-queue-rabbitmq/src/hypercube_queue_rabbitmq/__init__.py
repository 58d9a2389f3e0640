"""Hypercube's queue on RabbitMQ, through pika."""

from __future__ import annotations

from hypercube_queue_rabbitmq.__about__ import __version__
from hypercube_queue_rabbitmq._queue import RabbitMQQueue

__all__ = ["RabbitMQQueue", "__version__"]
