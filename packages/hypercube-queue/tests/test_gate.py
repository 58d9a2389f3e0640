"""Open, closed, and inherited through a fork."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from hypercube_queue import BackendError, QueueClosed
from hypercube_queue.driver import Gate


def test_an_open_gate_lets_any_number_in() -> None:
    """At the same time, nested or from other threads, and again afterwards."""
    gate = Gate("queue")
    with gate, gate:
        gate.check()
    with gate:
        assert not gate.closed


def test_a_closed_gate_names_what_is_closed() -> None:
    """Entering and checking raise the same (LIFE-1)."""
    gate = Gate("file queue")
    gate.close()

    assert gate.closed
    with pytest.raises(QueueClosed, match="this file queue is closed; open another one"), gate:
        pass
    with pytest.raises(QueueClosed, match="this file queue is closed"):
        gate.check()


def test_only_the_first_close_is_the_one_to_clean_up() -> None:
    """Closing is idempotent."""
    gate = Gate("queue")

    assert [gate.close(), gate.close(), gate.close()] == [True, False, False]


def test_what_is_inside_finishes_and_can_be_waited_for() -> None:
    """Nothing enters meanwhile."""
    gate = Gate("queue")
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with gate:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(10)
    gate.close()

    assert gate.wait_until_empty(timedelta(milliseconds=1)) is False
    leave.set()
    assert gate.wait_until_empty(timedelta(seconds=10)) is True
    thread.join(10)


def test_an_operation_that_raises_leaves_too() -> None:
    """And its error passes."""
    gate = Gate("queue")
    with pytest.raises(ZeroDivisionError), gate:
        raise ZeroDivisionError
    gate.close()

    assert gate.wait_until_empty(timedelta(0)) is True


def test_a_refused_entry_is_not_counted_as_inside() -> None:
    """Or closing would wait for it."""
    gate = Gate("queue")
    gate.close()
    with pytest.raises(QueueClosed), gate:
        pass

    assert gate.wait_until_empty(timedelta(0)) is True


def _in_a_forked_child(check: Callable[[], object]) -> str:
    """What `check` returns, or the error it raises, in a child of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(check())
        except BaseException as error:  # noqa: BLE001  # the child must tell whatever it is
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answered, _, _ = select.select([pipe], [], [], 10)
        if not answered:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return pipe.read() if answered else "the child hangs"


def _enter(gate: Gate) -> str:
    with gate:
        return "inside"


def test_a_forked_child_is_told_to_open_a_queue_of_its_own() -> None:
    """Each time; the parent goes on (LIFE-4)."""
    gate = Gate("memory queue")
    answer = _in_a_forked_child(lambda: _enter(gate))

    assert answer.startswith("QueueClosed: this memory queue belongs to the process that this one")
    assert "open one after the fork" in answer
    assert _enter(gate) == "inside"


def test_a_forked_child_opens_what_it_needs_at_its_first_entry_only() -> None:
    """Not before, since most children never use the queue."""
    opened: list[int] = []
    gate = Gate("queue", in_child=lambda: opened.append(os.getpid()))
    with gate:
        pass

    def twice() -> tuple[int, int]:
        before = len(opened)
        _enter(gate)
        _enter(gate)
        return before, len(opened)

    assert _in_a_forked_child(twice) == "(0, 1)"
    assert opened == []


def test_a_child_that_cannot_open_is_told_so_each_time() -> None:
    """With a client of the caller's there is nothing it could do."""

    def refuse() -> None:
        raise BackendError("the client belongs to the parent")

    gate = Gate("queue", in_child=refuse)

    def twice() -> list[str]:
        errors = []
        for _ in range(2):
            with pytest.raises(BackendError) as caught:
                _enter(gate)
            errors.append(str(caught.value))
        return errors

    assert _in_a_forked_child(twice) == repr(["the client belongs to the parent"] * 2)


def test_a_closed_gate_is_closed_in_the_child_as_well() -> None:
    """And opens nothing there."""
    opened: list[int] = []
    gate = Gate("queue", in_child=lambda: opened.append(1))
    gate.close()

    assert "this queue is closed" in _in_a_forked_child(lambda: _enter(gate))
    assert _in_a_forked_child(lambda: [gate.close(), opened]) == "[False, []]"


def test_a_fork_amid_operations_leaves_the_child_a_usable_gate() -> None:
    """Locks and counts of threads that the child does not have are forgotten."""
    gate = Gate("queue", in_child=lambda: None)

    def check() -> tuple[str, bool]:
        answer = _enter(gate)
        gate.close()
        return answer, gate.wait_until_empty(timedelta(seconds=5))

    with gate, gate._changed:  # as if another thread were about to enter
        answer = _in_a_forked_child(check)

    assert answer == "('inside', True)"
