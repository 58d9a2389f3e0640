"""The tree of errors, and the error of a batch."""

from __future__ import annotations

import inspect
import pickle
import re
import traceback

import pytest

import hypercube_queue
from hypercube_queue import (
    AlreadyExists,
    BackendError,
    BatchError,
    InvalidArgument,
    ItemFailure,
    Message,
    MessageTooLarge,
    NotFound,
    QueueError,
    _errors,
)
from hypercube_queue.driver import Delivery

_LINE = re.compile(r"^(?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: \(also an? (?P<also>\w+)\))?$")


def _drawn() -> dict[str, set[str]]:
    """The tree in the module's docstring: each class with its parents."""
    tree: dict[str, set[str]] = {}
    path: list[str] = []
    for line in (_errors.__doc__ or "").splitlines():
        if match := _LINE.match(line):
            depth = len(match["indent"]) // 4
            del path[depth:]
            parents = {path[-1]} if path else {"Exception"}
            tree[match["name"]] = parents | ({match["also"]} if match["also"] else set())
            path.append(match["name"])
    return tree


def test_the_drawn_tree_is_the_real_one() -> None:
    """Every error of the module is in it, under its bases."""
    real = {
        name: {base.__name__ for base in value.__bases__}
        for name, value in vars(_errors).items()
        if inspect.isclass(value) and issubclass(value, QueueError)
    }

    assert _drawn() == real
    assert set(real) <= set(hypercube_queue.__all__)


def _failed() -> tuple[list[Message], BatchError]:
    messages = [Message("q", b"secret", id=str(number)) for number in range(6)]
    failures = [
        ItemFailure(4, messages[4], BackendError("lost", outcome_unknown=True)),
        ItemFailure(1, messages[1], NotFound("stale one")),
        ItemFailure(2, messages[2], MessageTooLarge("too large")),
        ItemFailure(3, messages[3], NotFound("stale three")),
    ]
    return messages, BatchError("ack: 4 of 6 failed", iter(failures))


def _indexes(group: object) -> list[int]:
    assert isinstance(group, BatchError)
    return [failure.index for failure in group.failed]


def test_a_batch_error_lists_its_failures_by_index() -> None:
    """In ascending order, the caller's own objects, the same errors as its exceptions."""
    messages, error = _failed()

    assert _indexes(error) == [1, 2, 3, 4]
    assert [failure.message for failure in error.failed] == messages[1:5]
    assert error.failed[0].message is messages[1]
    assert error.exceptions == tuple(failure.error for failure in error.failed)


def test_a_batch_error_is_caught_as_a_queue_error() -> None:
    """Who does not care about items needs no except*."""
    with pytest.raises(QueueError) as caught:
        raise _failed()[1]

    assert isinstance(caught.value, BatchError)
    assert isinstance(caught.value, ExceptionGroup)


def test_except_star_takes_its_share_with_the_original_indexes() -> None:
    """What is left goes on, itself a BatchError."""
    taken: list[list[int]] = []
    with pytest.raises(BatchError) as caught:  # noqa: PT012  # except* is what is tested
        try:
            raise _failed()[1]
        except* NotFound as stale:
            taken.append(_indexes(stale))
        except* ValueError as invalid:
            taken.append(_indexes(invalid))

    assert taken == [[1, 3], [2]]
    assert _indexes(caught.value) == [4]


def test_split_and_subgroup_keep_the_original_indexes() -> None:
    """By type and by condition, and None where nothing matches."""
    _, error = _failed()
    stale, others = error.split(NotFound)

    assert _indexes(stale) == [1, 3]
    assert _indexes(others) == [2, 4]
    assert _indexes(error.subgroup(LookupError)) == [1, 3]
    assert _indexes(error.subgroup(lambda each: str(each) == "stale three")) == [3]
    assert error.subgroup(AlreadyExists) is None
    nothing, everything = error.split(AlreadyExists)
    assert nothing is None
    assert _indexes(everything) == [1, 2, 3, 4]


def test_a_batch_error_inside_another_group_is_split_like_any_other() -> None:
    """A TaskGroup wraps it, and indexes survive."""
    outer = ExceptionGroup("tasks", [ValueError("other"), _failed()[1]])

    stale = outer.subgroup(NotFound)

    assert stale is not None
    assert _indexes(stale.exceptions[0]) == [1, 3]


def test_an_index_that_failed_with_a_shared_error_is_kept() -> None:
    """Two items may have failed with one error object."""
    shared = BackendError("lost")
    error = BatchError("push: 2 of 2 failed", [ItemFailure(i, None, shared) for i in (0, 1)])

    assert _indexes(error.subgroup(BackendError)) == [0, 1]


def test_errors_of_somebody_else_derive_a_plain_group() -> None:
    """No index belongs to them."""
    derived = _failed()[1].derive([ValueError("foreign")])

    assert type(derived) is ExceptionGroup
    assert derived.message == "ack: 4 of 6 failed"


def test_a_batch_error_says_what_failed_in_one_line() -> None:
    """The first three, and how many more; no payload."""
    text = str(_failed()[1])

    assert text == (
        "ack: 4 of 6 failed: [1] NotFound: stale one; [2] MessageTooLarge: too large; "
        "[3] NotFound: stale three; and 1 more"
    )
    printed = "".join(traceback.format_exception(_failed()[1]))
    assert "secret" not in repr(_failed()[1]) + repr(_failed()[1].failed) + printed
    assert "BackendError: lost" in printed


def test_a_batch_error_of_nothing_cannot_be_made() -> None:
    """A batch without failures raises nothing."""
    with pytest.raises(ValueError, match="non-empty"):
        BatchError("push: 0 of 0 failed", [])


def test_a_batch_error_travels_to_another_process() -> None:
    """With indexes, outcome and messages; a delivery, which means nothing there, stays behind."""
    messages, error = _failed()
    messages[1].driver_data = Delivery(None, "q", "1")

    arrived = pickle.loads(pickle.dumps(error))

    assert _indexes(arrived) == [1, 2, 3, 4]
    assert str(arrived) == str(error)
    assert [failure.message for failure in arrived.failed] == messages[1:5]
    assert arrived.failed[0].message.driver_data is None
    assert arrived.failed[3].error.outcome_unknown is True
    assert messages[1].driver_data is not None


def test_a_failure_of_something_that_is_no_message_travels_too() -> None:
    """None was pushed, say."""
    error = BatchError("push: 1 of 1 failed", [ItemFailure(0, None, InvalidArgument("no"))])

    assert pickle.loads(pickle.dumps(error)).failed[0].message is None


def test_a_backend_error_keeps_whether_its_outcome_is_known() -> None:
    """Known unless said otherwise, on the way to another process too."""
    error = BackendError("the connection was lost", outcome_unknown=True)

    assert BackendError("refused").outcome_unknown is False
    assert error.outcome_unknown is True
    assert str(error) == "the connection was lost"
    assert pickle.loads(pickle.dumps(error)).outcome_unknown is True
