"""Requests to SQS. What was refused for being too many is repeated, and nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypercube_queue import BackendError, QueueError
from hypercube_queue.driver import Deadline, copy_error
from hypercube_queue_sqs._clients import Clients
from hypercube_queue_sqs._errors import (
    CLIENT_ERRORS,
    code_of,
    entry_error,
    is_throttled,
    plain_code,
    translation,
)
from hypercube_queue_sqs._wire import Entry

T = TypeVar("T")

#: How often a request is made that is refused for being too many.
_ATTEMPTS = 4
#: Seconds before the second; each further time it is twice as long.
_FIRST_PAUSE = 0.1

#: What became of the entries of a batch, in their order: None is success.
Fates = list[QueueError | None]


class Service:
    """SQS as the rest of the driver needs it. Everything ends by `end`, or soon after."""

    def __init__(self, clients: Clients, place: str) -> None:
        self._clients = clients
        self.place = place

    def ask(self, action: str, end: Deadline, about: str, **parameters: object) -> Any:
        """One request about a queue; `action` is boto3's name for it."""
        return self._once(
            lambda: getattr(self._clients.get().sqs, action)(**parameters), end, about
        )

    def send(self, url: str, entries: Sequence[Entry], end: Deadline) -> Fates:
        """Store messages."""
        return self._batch("send_message_batch", url, entries, end, settles=False)

    def delete(self, url: str, handles: Sequence[str], end: Deadline) -> Fates:
        """Remove deliveries."""
        entries = [{"ReceiptHandle": handle} for handle in handles]
        return self._batch("delete_message_batch", url, entries, end, settles=True)

    def change_visibility(
        self, url: str, changes: Sequence[tuple[str, int]], end: Deadline
    ) -> Fates:
        """Let leases end in so many seconds."""
        entries = [
            {"ReceiptHandle": handle, "VisibilityTimeout": seconds} for handle, seconds in changes
        ]
        return self._batch("change_message_visibility_batch", url, entries, end, settles=True)

    def receive(
        self, url: str, most: int, visibility: int, wait: int, end: Deadline
    ) -> list[dict[str, Any]]:
        """Up to ten messages, waiting for the first."""
        opened = self._opened(url)
        client = opened.polls if wait else opened.sqs
        answer = self._once(
            lambda: client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=most,
                VisibilityTimeout=visibility,
                # In any case: SQS would take the queue's own.
                WaitTimeSeconds=wait,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
                # What is set aside keeps what it came with.
                MessageAttributeNames=["All"],
            ),
            end,
            url,
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def _opened(self, about: str) -> Any:
        try:
            return self._clients.get()
        except CLIENT_ERRORS as error:
            raise translation(error, self.place, about=about) from error

    def _once(self, call: Callable[[], T], end: Deadline, about: str) -> T:
        for attempt in range(_ATTEMPTS):
            self._check(end)
            try:
                return call()
            except CLIENT_ERRORS as error:
                last = attempt == _ATTEMPTS - 1
                if last or not is_throttled(code_of(error)) or not _pause(attempt, end):
                    raise translation(error, self.place, about=about) from error
        raise AssertionError("the last attempt returns or raises")

    def _batch(
        self, action: str, url: str, entries: Sequence[Entry], end: Deadline, *, settles: bool
    ) -> Fates:
        fates: Fates = [None] * len(entries)
        left = list(range(len(entries)))
        for attempt in range(_ATTEMPTS):
            numbered = [{**entries[number], "Id": str(number)} for number in left]
            try:
                self._check(end)
                answer = getattr(self._opened(url).sqs, action)(QueueUrl=url, Entries=numbered)
            except CLIENT_ERRORS as caught:
                error = translation(caught, self.place, about=url)
                throttled = left if is_throttled(code_of(caught)) else []
                failed = dict.fromkeys(left, error)
            except QueueError as unsent:
                throttled, failed = [], dict.fromkeys(left, unsent)
            else:
                throttled, failed = self._outcome(answer, left, settles=settles)
            for number, error in failed.items():
                fates[number] = copy_error(error)
            left = throttled
            if not left or attempt == _ATTEMPTS - 1 or not _pause(attempt, end):
                break
            for number in left:
                fates[number] = None
        return fates

    def _outcome(
        self, answer: dict[str, Any], sent: Sequence[int], *, settles: bool
    ) -> tuple[list[int], dict[int, QueueError]]:
        """The entries that were too many, and all that failed."""
        succeeded = {each["Id"] for each in answer.get("Successful", ())}
        refused = {each["Id"]: each for each in answer.get("Failed", ())}
        throttled: list[int] = []
        failed: dict[int, QueueError] = {}
        for number in sent:
            found = refused.get(str(number))
            if found is not None:
                failed[number] = entry_error(found, self.place, settles=settles)
                if is_throttled(plain_code(str(found.get("Code", "")))):
                    throttled.append(number)
            elif str(number) not in succeeded:
                failed[number] = BackendError(
                    f"{self.place}: the answer does not say what became of the entry",
                    outcome_unknown=True,
                )
        return throttled, failed

    def _check(self, end: Deadline) -> None:
        if end.passed:
            raise BackendError(f"{self.place}: the time was over before the request was sent")


def _pause(attempt: int, end: Deadline) -> bool:
    """Wait before the next attempt; False if there is no time for it."""
    seconds = _FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    if seconds >= end.seconds_left():
        return False
    time.sleep(seconds)
    return True
