"""Its client library is there, and tells what it meets where no server is."""

import socket

from hypercube_queue import BackendError, BatchError, Message, open_queue

with socket.socket() as taken:
    # Bound and not listened on: nobody answers, and nobody else can take it.
    taken.bind(("127.0.0.1", 0))
    url = f"valkey://127.0.0.1:{taken.getsockname()[1]}?operation_timeout=5"
    with open_queue(url) as queue:
        try:
            queue.push(Message("work", b"payload"))
        except BatchError as error:
            [failure] = error.failed
            assert isinstance(failure.error, BackendError), failure.error
        else:
            raise AssertionError("there is a server")
