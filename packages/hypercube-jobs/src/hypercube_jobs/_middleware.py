"""Code of yours around each dispatch and each attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta

from hypercube_jobs._attempt import Attempt
from hypercube_jobs._observer import Observer

_NOTHING = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """A job that is about to be stored."""

    id: str
    kind: str
    #: Empty but for the jobs of `jobs.under(namespace)`.
    namespace: str
    queue: str
    delay: timedelta
    max_retries: int
    #: What travels with the job for whoever traces, such as `traceparent`; a middleware may
    #: write here. Within a handler it begins with what came with that handler's own job.
    trace: dict[str, str] = field(repr=False)


class Middleware(Observer):
    """An observer that also wraps dispatches and attempts, each in a context manager.

        class Sessions(Middleware):
            @contextmanager
            def processing(self, attempt: Attempt) -> Iterator[None]:
                with database.session():
                    yield

        jobs.add_observer(Sessions())

    The one that was added first is outermost. Context variables that it sets are seen within.
    """

    def dispatching(self, dispatch: Dispatch) -> AbstractContextManager[object]:  # noqa: ARG002 for subclasses
        """Wraps the storing of a job, in the thread that dispatches.

        What it raises reaches the caller; before its `yield` nothing is stored then. Where a
        job is stored after a transaction's commit, that is when it is called, in a copy of
        the context of the dispatch.
        """
        return _NOTHING

    def processing(self, attempt: Attempt) -> AbstractContextManager[object]:  # noqa: ARG002 for subclasses
        """Wraps an attempt, in the handler's context, and in its thread or on the event loop.

        What it raises is as if the handler had raised it; if it swallows an exception, the
        attempt has succeeded. It must not block, for the sake of asynchronous handlers.
        """
        return _NOTHING


def dispatching(
    dispatch: Dispatch, middleware: Sequence[Middleware]
) -> AbstractContextManager[object]:
    """All of `middleware` around a dispatch."""
    return _nested(each.dispatching(dispatch) for each in middleware)


def processing(
    attempt: Attempt, middleware: Sequence[Middleware]
) -> AbstractContextManager[object]:
    """All of `middleware` around an attempt."""
    if not middleware:
        return _NOTHING
    return _nested(each.processing(attempt) for each in middleware)


@contextmanager
def _nested(contexts: Iterable[AbstractContextManager[object]]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in contexts:
            stack.enter_context(each)
        yield
