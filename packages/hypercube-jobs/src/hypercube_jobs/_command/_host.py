"""What has to be up while the jobs of an application run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
)

from hypercube_jobs._command._source import DEBUG_VARIABLE, AppNotLoaded
from hypercube_jobs._jobs import Jobs

_log = logging.getLogger("hypercube_jobs.worker")


@contextmanager
def hosted(jobs: Jobs, app: str) -> Iterator[None]:
    """Enter what the jobs named by `hosted_by`. Raises AppNotLoaded where that fails."""
    host = jobs.host
    with ExitStack() as stack:
        if isinstance(host, AbstractContextManager):
            try:
                stack.enter_context(host)
            except Exception as error:
                raise AppNotLoaded(
                    f"starting the {type(host).__name__} of {app} failed: {type(error).__name__}: "
                    f"{error}; {DEBUG_VARIABLE}=1 shows the traceback"
                ) from error
        elif isinstance(host, AbstractAsyncContextManager):
            _log.warning(
                "the %s of %s is not started, as there is no event loop for it here: let a module "
                "of your own start what its jobs need, or use a synchronous one",
                type(host).__name__,
                app,
            )
        yield
