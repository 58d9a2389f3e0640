"""The limit on SQS: boto3 with batches of ten, one after the other, as most programs use it."""

from __future__ import annotations

import boto3  # type: ignore[import-untyped]  # it ships no types
from tools.bench.raw import PAYLOAD

_ENTRIES = 10


class RawSQS:
    """One client, and a queue that is its own."""

    def __init__(self, endpoint: str, queue_name: str) -> None:
        self._client = boto3.client(
            "sqs",
            region_name="eu-west-1",
            endpoint_url=endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106 - any will do
        )
        self._url = self._client.create_queue(QueueName=queue_name)["QueueUrl"]

    def push(self, count: int) -> None:
        body = PAYLOAD.decode()
        for start in range(0, count, _ENTRIES):
            entries = [
                {"Id": str(number), "MessageBody": body}
                for number in range(min(_ENTRIES, count - start))
            ]
            self._client.send_message_batch(QueueUrl=self._url, Entries=entries)

    def pop_and_ack(self, count: int) -> None:
        while count > 0:
            received = self._client.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=min(_ENTRIES, count), WaitTimeSeconds=1
            )["Messages"]
            entries = [
                {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
                for number, each in enumerate(received)
            ]
            self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            count -= len(received)

    def close(self) -> None:
        self._client.close()
