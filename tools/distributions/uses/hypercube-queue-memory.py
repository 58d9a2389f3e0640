"""A message there and back."""

from hypercube_queue import Message, open_queue

with open_queue("memory://") as queue:
    queue.push(Message("work", b"payload"))
    [message] = queue.pop("work")
    queue.ack(message)
    assert message.payload == b"payload"
