"""The actions of the service: what a request asks for, and what it is answered."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.strict_sqs import limits
from tools.strict_sqs.errors import Refused
from tools.strict_sqs.faults import Fault, Faults
from tools.strict_sqs.queues import Queue, md5

Params = Mapping[str, Any]
Answer = dict[str, Any]

#: Seconds for which the name of a deleted queue cannot be used.
_DELETED_FOR = 60.0
ACCOUNT = "000000000000"


class Account:
    """The queues of one account, and what can be done with them."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        #: How the account is reached, without a slash at the end.
        self.endpoint = ""
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._deleted: dict[str, float] = {}

    def perform(self, action: str, params: Params, faults: Sequence[Fault]) -> Answer:
        """Do what a request asks for; raises Refused."""
        act: Callable[[Params, Sequence[Fault]], Answer] | None = _ACTIONS.get(action)
        if act is None:
            raise Refused("UnsupportedOperation", f"{action} is not supported here.")
        return act(self, params, faults)  # type: ignore[call-arg,arg-type]  # they are unbound

    def queue(self, url: str) -> Queue:
        """The queue that a URL names."""
        with self._lock:
            found = self._queues.get(url.rstrip("/").rpartition("/")[2])
        if found is None:
            raise Refused("QueueDoesNotExist", "The specified queue does not exist.")
        return found

    # Queues

    def _create_queue(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        attributes = {name: str(value) for name, value in params.get("Attributes", {}).items()}
        name = limits.checked_queue_name(params.get("QueueName"), attributes)
        limits.check_queue_attributes(attributes)
        with self._lock:
            if time.monotonic() < self._deleted.get(name, 0.0):
                raise Refused(
                    "QueueDeletedRecently",
                    "You must wait 60 seconds after deleting a queue before you can create "
                    "another with the same name.",
                )
            found = self._queues.get(name)
            if found is None:
                url = f"{self.endpoint}/{ACCOUNT}/{name}"
                found = self._queues[name] = Queue(name, url, attributes, self.faults)
            elif any(found.attributes.get(each) != value for each, value in attributes.items()):
                raise Refused(
                    "QueueNameExists",
                    f"A queue already exists with the same name and a different value for {name}",
                )
            return {"QueueUrl": found.url}

    def _get_queue_url(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        return {"QueueUrl": self.queue(str(params.get("QueueName"))).url}

    def _get_queue_attributes(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        queue = self.queue(params["QueueUrl"])
        found = {name: str(default) for name, (default, _, _) in limits.ATTRIBUTES.items()}
        found |= queue.attributes
        found |= {name: str(count) for name, count in queue.counts().items()}
        found["QueueArn"] = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{queue.name}"
        wanted = params.get("AttributeNames") or []
        return {
            "Attributes": {
                name: value for name, value in found.items() if "All" in wanted or name in wanted
            }
        }

    def _set_queue_attributes(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        attributes = {name: str(value) for name, value in params["Attributes"].items()}
        limits.check_queue_attributes(attributes)
        self.queue(params["QueueUrl"]).attributes.update(attributes)
        return {}

    def _list_queues(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        prefix = params.get("QueueNamePrefix", "")
        with self._lock:
            urls = [each.url for each in self._queues.values() if each.name.startswith(prefix)]
        return {"QueueUrls": sorted(urls)}

    def _purge_queue(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        self.queue(params["QueueUrl"]).purge()
        return {}

    def _delete_queue(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        queue = self.queue(params["QueueUrl"])
        with self._lock:
            self._queues.pop(queue.name, None)
            self._deleted[queue.name] = time.monotonic() + _DELETED_FOR
        queue.close()
        return {}

    # Messages

    def _send_message(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        return self._sent(self.queue(params["QueueUrl"]), params)

    def _send_message_batch(self, params: Params, faults: Sequence[Fault]) -> Answer:
        limits.check_entries(params["Entries"])
        limits.check_batch_size(params["Entries"])
        return self._batch(params, faults, self._sent)

    def _sent(self, queue: Queue, entry: Params) -> Answer:
        limits.check_message(entry, queue.setting("MaximumMessageSize"))
        delay = entry.get("DelaySeconds")
        if delay is None:
            delay = queue.setting("DelaySeconds")
        delay = limits.number("DelaySeconds", delay, 0, limits.LONGEST_DELAY)
        attributes = entry.get("MessageAttributes") or {}
        stored = queue.send(entry["MessageBody"], attributes, delay)
        return {"MessageId": stored.id, "MD5OfMessageBody": md5(stored.body)}

    def _receive_message(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        queue = self.queue(params["QueueUrl"])
        wait = params.get("WaitTimeSeconds")
        visibility = params.get("VisibilityTimeout")
        received = queue.receive(
            limits.number("MaxNumberOfMessages", params.get("MaxNumberOfMessages", 1), 1, 10),
            limits.number(
                "VisibilityTimeout",
                queue.setting("VisibilityTimeout") if visibility is None else visibility,
                0,
                limits.LONGEST_VISIBILITY,
            ),
            limits.number(
                "WaitTimeSeconds",
                queue.setting("ReceiveMessageWaitTimeSeconds") if wait is None else wait,
                0,
                limits.LONGEST_WAIT,
            ),
        )
        wanted = params.get("MessageSystemAttributeNames") or params.get("AttributeNames") or []
        with_attributes = bool(params.get("MessageAttributeNames"))
        messages = []
        for stored, handle, receives in received:
            message: Answer = {
                "MessageId": stored.id,
                "ReceiptHandle": handle,
                "Body": stored.body,
                "MD5OfBody": md5(stored.body),
            }
            if {"All", "ApproximateReceiveCount"} & set(wanted):
                message["Attributes"] = {"ApproximateReceiveCount": str(receives)}
            if with_attributes and stored.attributes:
                message["MessageAttributes"] = stored.attributes
            messages.append(message)
        return {"Messages": messages} if messages else {}

    def _delete_message(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        self.queue(params["QueueUrl"]).delete(params["ReceiptHandle"])
        return {}

    def _delete_message_batch(self, params: Params, faults: Sequence[Fault]) -> Answer:
        limits.check_entries(params["Entries"])

        def delete(queue: Queue, entry: Params) -> Answer:
            queue.delete(entry["ReceiptHandle"])
            return {}

        return self._batch(params, faults, delete)

    def _change_message_visibility(self, params: Params, _faults: Sequence[Fault]) -> Answer:
        return self._changed(self.queue(params["QueueUrl"]), params)

    def _change_message_visibility_batch(self, params: Params, faults: Sequence[Fault]) -> Answer:
        limits.check_entries(params["Entries"])
        return self._batch(params, faults, self._changed)

    def _changed(self, queue: Queue, entry: Params) -> Answer:
        seconds = limits.number(
            "VisibilityTimeout", entry.get("VisibilityTimeout"), 0, limits.LONGEST_VISIBILITY
        )
        queue.change_visibility(entry["ReceiptHandle"], seconds)
        return {}

    def _batch(
        self, params: Params, faults: Sequence[Fault], act: Callable[[Queue, Params], Answer]
    ) -> Answer:
        queue = self.queue(params["QueueUrl"])
        successful: list[Answer] = []
        failed: list[Answer] = []
        for position, entry in enumerate(params["Entries"]):
            hit = [each for each in faults if each.entries is None or position in each.entries]
            omitted = [each for each in hit if each.kind == "omit"]
            try:
                for each in hit:
                    if each.kind == "fail" and each.error is not None:
                        raise each.error
                if any(not each.acts for each in omitted):
                    continue
                answer = act(queue, entry)
            except Refused as error:
                failed.append(
                    {
                        "Id": entry["Id"],
                        "Code": error.query_code,
                        "Message": error.text,
                        "SenderFault": error.sender_fault,
                    }
                )
            else:
                if not omitted:
                    successful.append({"Id": entry["Id"], **answer})
        return {"Successful": successful, "Failed": failed}


_ACTIONS: dict[str, Callable[..., Answer]] = {
    "ChangeMessageVisibility": Account._change_message_visibility,
    "ChangeMessageVisibilityBatch": Account._change_message_visibility_batch,
    "CreateQueue": Account._create_queue,
    "DeleteMessage": Account._delete_message,
    "DeleteMessageBatch": Account._delete_message_batch,
    "DeleteQueue": Account._delete_queue,
    "GetQueueAttributes": Account._get_queue_attributes,
    "GetQueueUrl": Account._get_queue_url,
    "ListQueues": Account._list_queues,
    "PurgeQueue": Account._purge_queue,
    "ReceiveMessage": Account._receive_message,
    "SendMessage": Account._send_message,
    "SendMessageBatch": Account._send_message_batch,
    "SetQueueAttributes": Account._set_queue_attributes,
}


def encoded(answer: object) -> bytes:
    """As it travels."""
    return json.dumps(answer, separators=(",", ":")).encode()
