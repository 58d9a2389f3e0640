"""Metrics, with the real client."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from hypercube_jobs import Constant, JobEvent
from hypercube_jobs.prometheus import Prometheus
from hypercube_queue import Message


@dataclass
class Note:
    """A job."""

    text: str


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    all_labels = {"queue": "default", "namespace": "", "kind": "note", **labels}
    return registry.get_sample_value(f"hypercube_jobs_{name}", all_labels)


def test_what_happens_to_jobs_is_counted(box: Any) -> None:
    """By queue, namespace and kind; a failure says whether it was final."""
    registry = CollectorRegistry()
    box.jobs.add_observer(Prometheus(registry=registry))

    @box.jobs.handler("note", retries=1, backoff=Constant(timedelta(0)))
    def note(job: Note) -> None:
        if job.text == "bad":
            raise ValueError

    box.jobs.under("mail").declare("note", Note)
    box.jobs.under("mail").handler("note")(lambda job: None)
    for text in ("a", "b", "bad"):
        box.jobs.dispatch(Note(text))
    box.jobs.under("mail").dispatch(Note("c"))
    box.drain()

    assert value(registry, "dispatched_total") == 3
    assert value(registry, "processed_total") == 2
    assert value(registry, "failed_total", final="false") == 1
    assert value(registry, "failed_total", final="true") == 1
    assert value(registry, "processed_total", namespace="mail") == 1
    assert value(registry, "duration_seconds_count") == 4


def test_running_attempts_are_shown(box: Any) -> None:
    """While they run, whatever they end with."""
    registry = CollectorRegistry()
    box.jobs.add_observer(Prometheus(registry=registry))
    seen = []

    @box.jobs.handler("note", retries=0)
    async def note(job: Note) -> None:
        seen.append(value(registry, "in_progress"))
        raise ValueError

    box.jobs.dispatch(Note("a"))
    box.drain()

    assert seen == [1]
    assert value(registry, "in_progress") == 0


def test_interruptions_and_losses_are_counted() -> None:
    """They are neither successes nor failures."""
    registry = CollectorRegistry()
    observer = Prometheus(registry=registry, buckets=(1, 2))
    event = JobEvent(id="x", kind="note", queue="default", attempt=1, max_retries=0)
    observer.interrupted(event)
    observer.lost(event)

    assert value(registry, "interrupted_total") == 1
    assert value(registry, "lost_total") == 1
    assert value(registry, "duration_seconds_count") is None


def test_the_exposition_is_what_prometheus_reads(box: Any) -> None:
    """With the buckets that were asked for."""
    registry = CollectorRegistry()
    observer = Prometheus(registry=registry, buckets=(1, 2))
    observer.processed(
        JobEvent(
            id="x",
            kind="note",
            queue="default",
            attempt=1,
            max_retries=0,
            duration=timedelta(seconds=1.5),
        )
    )

    text = generate_latest(registry).decode()
    assert (
        'hypercube_jobs_duration_seconds_bucket{kind="note",le="2.0",namespace="",'
        'queue="default"} 1.0' in text
    )


def test_kinds_that_are_not_declared_have_one_label(box: Any) -> None:
    """Whoever may push would fill the memory of workers with names else."""
    registry = CollectorRegistry()
    box.jobs.add_observer(Prometheus(registry=registry))
    box.queue.push(*(Message("default", b"{}", f"kind{n}") for n in range(50)))
    box.queue.push(*(Message("default", b"{}", "note", f"space{n}") for n in range(50)))
    before = len(generate_latest(registry).splitlines())
    running = box.start()
    unknown = {"namespace": "unknown", "kind": "unknown"}
    box.until(lambda: value(registry, "failed_total", final="true", **unknown) == 50)
    box.until(lambda: value(registry, "failed_total", final="false", **unknown) == 50)
    running.stop()
    running.end()

    exposition = generate_latest(registry).decode()
    assert len(exposition.splitlines()) - before < 40
    assert "kind1" not in exposition
    assert "space1" not in exposition
