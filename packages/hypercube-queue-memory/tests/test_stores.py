"""Who shares messages with whom, and how a memory queue is opened."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta

import pytest

from hypercube_queue import InvalidArgument, Message, NotFound, open_queue
from hypercube_queue_memory import MemoryQueue, MemoryStore

_NOW = timedelta(0)


def test_objects_on_one_store_see_the_same_messages():
    """What one pushes, the other pops; a delivery stays with the object that popped it."""
    store = MemoryStore()
    first, second = MemoryQueue(store), MemoryQueue(store)
    first.push(Message("q", b"work"))
    [delivery] = second.pop("q", wait=_NOW)
    with pytest.raises(ExceptionGroup) as caught:
        first.ack(delivery)
    assert caught.group_contains(NotFound)
    second.ack(delivery)


def test_objects_without_a_store_share_nothing():
    """Each has a store of its own."""
    MemoryQueue().push(Message("q"))
    assert MemoryQueue().pop("q", wait=_NOW) == []


def test_one_name_is_one_store_in_the_whole_process():
    """memory://name means the same messages everywhere, and keeps them when queues close."""
    with open_queue("memory://shared-name") as queue:
        queue.push(Message("q", b"kept"))
    again = open_queue("memory://shared-name?visibility_timeout=5")
    assert [each.payload for each in again.pop("q", wait=_NOW)] == [b"kept"]
    assert open_queue("memory://another-name").pop("q", wait=_NOW) == []
    assert open_queue("memory://").pop("q", wait=_NOW) == []


@pytest.mark.parametrize(
    "url",
    ["memory://name/path", "memory://name:1", "memory://user:s3cret@name", "memory://#name"],
)
def test_a_url_with_parts_that_mean_nothing_is_refused(url):
    """InvalidArgument, which does not repeat a password."""
    with pytest.raises(InvalidArgument) as caught:
        open_queue(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "bad"),
    [
        ("poll_timeout", timedelta(seconds=-1)),
        ("poll_timeout", None),
        ("poll_timeout", 1),
        ("visibility_timeout", timedelta(0)),
        ("visibility_timeout", None),
        ("visibility_timeout", 30),
    ],
)
def test_a_bad_option_is_refused_by_name(option, bad):
    """When the object is made, and not at the first call."""
    with pytest.raises(InvalidArgument, match=f"{option} is "):
        MemoryQueue(**{option: bad})


def test_a_name_means_a_new_store_in_a_forked_child():
    """The parent's messages are the parent's, and its locks are not waited for."""
    parent = open_queue("memory://forked-name")
    parent.push(Message("q", b"parent's"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other tests' threads, if any
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child = open_queue("memory://forked-name")
            if child.pop("q", wait=_NOW) == []:
                child.push(Message("q", b"child's"))
                status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert [each.payload for each in parent.pop("q", wait=_NOW)] == [b"parent's"]
