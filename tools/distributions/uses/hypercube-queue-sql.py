"""SQLite at once; other databases say what they need."""

from hypercube_queue import InvalidArgument, Message, open_queue

with open_queue("sqlite:///jobs.db") as queue:
    queue.push(Message("work", b"payload"))
    [message] = queue.pop("work")
    queue.ack(message)
    assert message.payload == b"payload"

for scheme, extra in (("postgresql", "postgresql"), ("mysql", "mysql"), ("mariadb", "mysql")):
    try:
        open_queue(f"{scheme}://localhost/jobs")
    except InvalidArgument as error:
        assert f"hypercube-queue-sql[{extra}]" in str(error)
    else:
        raise AssertionError("its client library is there")
