"""Counting jobs, and timing attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from hypercube_jobs._attempt import Attempt
from hypercube_jobs._middleware import Middleware
from hypercube_jobs._observer import JobEvent

_LABELS = ("queue", "namespace", "kind")
#: The kind and the namespace of what is not declared: whoever may push makes up any number.
_UNKNOWN = "unknown"
#: Jobs take from milliseconds to hours. In seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


class Prometheus(Middleware):
    """Counts what happens to jobs, times attempts, and shows how many run.

        jobs.add_observer(Prometheus())
        prometheus_client.start_http_server(9000, addr="127.0.0.1")

    The metrics, by queue, namespace and kind: the counters `hypercube_jobs_dispatched_total`,
    `_processed_total`, `_failed_total` (with `final`, which is `true` for jobs that are not
    tried again), `_interrupted_total` and `_lost_total`, the histogram
    `hypercube_jobs_duration_seconds`, and the gauge `hypercube_jobs_in_progress`. Where
    several processes share an address, prometheus-client's multiprocess mode adds them up. Kinds
    and namespaces that are not declared here are all labelled `unknown`.

    A registry takes one object; give several `Jobs` objects the same one.
    """

    def __init__(
        self, *, registry: CollectorRegistry = REGISTRY, buckets: Sequence[float] = _BUCKETS
    ) -> None:
        def counter(step: str, text: str, *more: str) -> Counter:
            name = f"hypercube_jobs_{step}"
            return Counter(name, text, (*_LABELS, *more), registry=registry)

        self._dispatched = counter("dispatched", "Jobs that were stored")
        self._processed = counter("processed", "Attempts that succeeded")
        self._failed = counter("failed", "Attempts that failed", "final")
        self._interrupted = counter("interrupted", "Attempts that a shutdown ended at no cost")
        self._lost = counter("lost", "Attempts whose lease had ended before they did")
        self._duration = Histogram(
            "hypercube_jobs_duration_seconds",
            "How long attempts took that succeeded or failed",
            _LABELS,
            buckets=buckets,
            registry=registry,
        )
        self._in_progress = Gauge(
            "hypercube_jobs_in_progress",
            "Attempts that are running",
            _LABELS,
            multiprocess_mode="livesum",
            registry=registry,
        )

    @contextmanager
    def processing(self, attempt: Attempt) -> Iterator[None]:
        """See `Middleware.processing`."""
        with self._in_progress.labels(*_values(attempt)).track_inprogress():
            yield

    def dispatched(self, event: JobEvent) -> None:
        """See `Observer.dispatched`."""
        self._dispatched.labels(*_values(event)).inc()

    def processed(self, event: JobEvent) -> None:
        """See `Observer.processed`."""
        self._processed.labels(*_values(event)).inc()
        self._time(event)

    def failed(self, event: JobEvent) -> None:
        """See `Observer.failed`."""
        self._failed.labels(*_values(event), "true" if event.final else "false").inc()
        self._time(event)

    def interrupted(self, event: JobEvent) -> None:
        """See `Observer.interrupted`."""
        self._interrupted.labels(*_values(event)).inc()

    def lost(self, event: JobEvent) -> None:
        """See `Observer.lost`."""
        self._lost.labels(*_values(event)).inc()

    def _time(self, event: JobEvent) -> None:
        self._duration.labels(*_values(event)).observe(event.duration.total_seconds())


def _values(job: Attempt | JobEvent) -> tuple[str, str, str]:
    if not job.declared:
        return job.queue, _UNKNOWN, _UNKNOWN
    return job.queue, job.namespace, job.kind
