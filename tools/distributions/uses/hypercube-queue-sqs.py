"""Its client library is there, and tells what it meets where no service is."""

import os
import socket

from hypercube_queue import BackendError, BatchError, Message, open_queue

os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")
with socket.socket() as taken:
    # Bound and not listened on: nobody answers, and nobody else can take it.
    taken.bind(("127.0.0.1", 0))
    endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with open_queue(f"sqs://eu-west-1?endpoint={endpoint}&operation_timeout=5") as queue:
        try:
            queue.push(Message("work", b"payload"))
        except BatchError as error:
            [failure] = error.failed
            assert isinstance(failure.error, BackendError), failure.error
        else:
            raise AssertionError("there is a service")
