"""Finding the queues at AWS, and looking once at how they are set up."""

from __future__ import annotations

import json
import logging
import time
from datetime import timedelta

from hypercube_queue import BackendError, InvalidArgument, QueueError
from hypercube_queue.driver import Deadline, safe_repr
from hypercube_queue_sqs._errors import code_of
from hypercube_queue_sqs._names import Names
from hypercube_queue_sqs._options import MAX_RETENTION
from hypercube_queue_sqs._place import Place
from hypercube_queue_sqs._service import Service
from hypercube_queue_sqs._wire import MAX_REQUEST_BYTES

_log = logging.getLogger("hypercube_queue_sqs")

#: A redrive policy that moves messages after fewer receives acts before the worker has decided.
_ENOUGH_RECEIVES = 100
#: How long SQS may say of a queue that was just created that it does not exist.
_KNOWN_EVERYWHERE = timedelta(seconds=3)
_PAUSE = 0.25
#: What queues that the driver creates have, and SQS would not give them.
_CREATED_WITH = {
    "MaximumMessageSize": str(MAX_REQUEST_BYTES),
    "MessageRetentionPeriod": str(int(MAX_RETENTION.total_seconds())),
}


class Directory:
    """The queues of one driver object, each asked for once. Raises QueueError."""

    def __init__(self, service: Service, names: Names, *, ensure_queues: bool) -> None:
        self._service = service
        self._names = names
        self._ensure_queues = ensure_queues
        self._places: dict[str, Place] = {}
        self._dead: dict[str, str] = {}

    def ensure_nothing(self) -> None:
        """Create no queues from now on."""
        self._ensure_queues = False

    def known(self, queue_name: str) -> Place | None:
        """The queue, if it was asked for before."""
        return self._places.get(queue_name)

    def forget(self, queue_name: str, error: QueueError | None) -> None:
        """Ask again next time, if it was deleted."""
        if error is not None and _is_missing(error):
            self._places.pop(queue_name, None)
            self._dead.pop(queue_name, None)

    def work(self, queue_name: str, end: Deadline) -> Place:
        """The queue that is pushed to and popped from."""
        if place := self._places.get(queue_name):
            return place
        if self._ensure_queues:
            # First, so that nothing is ever popped without a place to put it aside.
            self.dead(queue_name, end)
        name = self._names.work(queue_name)
        url = self._url(name, end)
        place = self._checked(name, url, self._attributes(name, url, end))
        return self._places.setdefault(queue_name, place)

    def dead(self, queue_name: str, end: Deadline) -> str:
        """The URL of the queue of its dead letters."""
        if url := self._dead.get(queue_name):
            return url
        return self._dead.setdefault(queue_name, self._url(self._names.dead(queue_name), end))

    def _attributes(self, name: str, url: str, end: Deadline) -> dict[str, str]:
        patience = Deadline(_KNOWN_EVERYWHERE)
        while True:
            try:
                answer = self._service.ask(
                    "get_queue_attributes",
                    end,
                    safe_repr(name),
                    QueueUrl=url,
                    AttributeNames=["All"],
                )
            except BackendError as error:
                # A queue that was just created is not known to all of SQS yet.
                if not self._ensure_queues or not _is_missing(error) or patience.passed:
                    raise
                time.sleep(_PAUSE)
            else:
                found: dict[str, str] = answer.get("Attributes", {})
                return found

    def _url(self, name: str, end: Deadline) -> str:
        try:
            answer = self._service.ask("get_queue_url", end, safe_repr(name), QueueName=name)
        except BackendError as error:
            if not _is_missing(error) or not self._ensure_queues:
                raise
            answer = self._service.ask(
                "create_queue", end, safe_repr(name), QueueName=name, Attributes=_CREATED_WITH
            )
        return str(answer["QueueUrl"])

    def _checked(self, name: str, url: str, attributes: dict[str, str]) -> Place:
        if attributes.get("FifoQueue") == "true":
            raise InvalidArgument(
                f"{safe_repr(name)} is a FIFO queue; this driver is for Standard queues"
            )
        if (delay := int(attributes.get("DelaySeconds", 0))) > 0:
            _log.warning(
                "SQS queue %s delays by %d s what names no delay of its own. Messages of this "
                "driver do name theirs, but other producers', and what AWS moves there, come late; "
                "set DelaySeconds to 0",
                safe_repr(name),
                delay,
            )
        if (poll := int(attributes.get("ReceiveMessageWaitTimeSeconds", 0))) > 0:
            _log.debug("SQS queue %s polls for %d s by default; pops say theirs", name, poll)
        _warn_of_redrive_policy(name, attributes.get("RedrivePolicy", ""))
        return Place(
            url,
            attributes.get("QueueArn", url),
            int(attributes.get("MessageRetentionPeriod", MAX_RETENTION.total_seconds())),
            int(attributes.get("MaximumMessageSize", MAX_REQUEST_BYTES)),
        )


def _is_missing(error: QueueError) -> bool:
    """Whether SQS says that there is no such queue."""
    return error.__cause__ is not None and code_of(error.__cause__) == "QueueDoesNotExist"


def _warn_of_redrive_policy(name: str, policy: str) -> None:
    try:
        found = json.loads(policy or "{}")
        receives = int(found.get("maxReceiveCount", _ENOUGH_RECEIVES))
    except (ValueError, TypeError, AttributeError):
        return
    if receives < _ENOUGH_RECEIVES:
        _log.warning(
            "SQS queue %s has a redrive policy that moves a message to %s when it was received %d "
            "times, whatever the worker decides; remove it, or raise maxReceiveCount to %d or more",
            safe_repr(name),
            safe_repr(found.get("deadLetterTargetArn", "another queue")),
            receives,
            _ENOUGH_RECEIVES,
        )
