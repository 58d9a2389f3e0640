"""What queues are called at the broker."""

from __future__ import annotations

import pytest

from hypercube_queue import InvalidArgument, open_queue
from hypercube_queue_rabbitmq._names import Names


@pytest.mark.parametrize("prefix", ["", "app."])
@pytest.mark.parametrize("name", ["mail", "x" * 255, "é" * 127, "x" * 254, "dead.x"])
def test_every_name_fits_and_none_meets_another(prefix: str, name: str) -> None:
    """Names of 255 bytes are the broker's limit, too, and the driver puts words before them."""
    names = Names(prefix)
    made = [names.work(name), names.dead(name), names.unreadable(name)]

    assert max(len(each.encode()) for each in made) <= 255
    assert len(set(made)) == 3
    assert len({*made, *map(names.work, ["x" * 253, "mail2"])}) == 5


def test_a_short_name_is_what_people_will_look_for() -> None:
    """Nothing is encoded in what an operator sees."""
    names = Names("app.")

    assert names.work("mail") == "app.mail"
    assert names.dead("mail") == "hypercube.dead.app.mail"
    assert names.unreadable("mail") == "hypercube.unreadable.app.mail"


@pytest.mark.parametrize("prefix", ["amq.", "hypercube.", "app", "a b.", "é.", "x" * 64 + "."])
def test_a_prefix_that_cannot_start_a_name_is_refused(prefix: str) -> None:
    """InvalidArgument that names it, before anything is opened."""
    with pytest.raises(InvalidArgument, match="prefix"):
        open_queue(f"amqp://host/?prefix={prefix}")


@pytest.mark.parametrize("name", ["amq.mail", "hypercube.mail"])
def test_a_reserved_name_is_refused(name: str) -> None:
    """The broker keeps the one for itself, the driver the other."""
    with (
        open_queue("amqp://127.0.0.1:1/") as queue,
        pytest.raises(InvalidArgument, match="this backend can carry"),
    ):
        queue.pop(name)
