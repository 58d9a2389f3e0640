"""Hypercube's queue on Amazon SQS, through boto3."""

from __future__ import annotations

from hypercube_queue_sqs.__about__ import __version__
from hypercube_queue_sqs._dynamodb import DynamoDBIDStore
from hypercube_queue_sqs._ids import PROCESS_IDS, IDState, IDStore, ProcessIDStore
from hypercube_queue_sqs._queue import SQSQueue

__all__ = [
    "PROCESS_IDS",
    "DynamoDBIDStore",
    "IDState",
    "IDStore",
    "ProcessIDStore",
    "SQSQueue",
    "__version__",
]
