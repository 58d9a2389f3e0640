"""Without a driver it says which one to install."""

from hypercube_queue import InvalidArgument, Message, open_queue

assert Message("work", b"payload").payload == b"payload"
try:
    open_queue("redis://localhost")
except InvalidArgument as error:
    assert "pip install 'hypercube-queue-redis'" in str(error)
else:
    raise AssertionError("there is a driver")
