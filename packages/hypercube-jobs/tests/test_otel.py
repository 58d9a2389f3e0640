"""Traces and metrics, with the real SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as contexts
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sqlalchemy import create_engine

from hypercube_jobs import Constant, InlineQueue, Jobs, PermanentError
from hypercube_jobs.otel import OpenTelemetry
from hypercube_queue import Message


@dataclass
class Note:
    """A job."""

    text: str


class Telemetry:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.tracer = self.tracers.get_tracer("test")

    def middleware(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def test_an_attempt_belongs_to_the_trace_of_its_dispatch(box: Any, telemetry: Telemetry) -> None:
    """As a child of the dispatch, and linked to it."""
    box.jobs.add_observer(telemetry.middleware())
    inside = []

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    with telemetry.tracer.start_as_current_span("request") as request:
        result = box.jobs.dispatch(Note("x"))
    box.drain()

    sent, processed = telemetry.span("send default"), telemetry.span("process default")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.parent.span_id == request.get_span_context().span_id
    assert processed.parent.span_id == sent.context.span_id
    assert processed.context.trace_id == request.get_span_context().trace_id
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]
    assert inside == [processed.context.span_id]
    assert dict(sent.attributes) == {
        "messaging.system": "hypercube",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": result.id,
        "hypercube.job.kind": "note",
    }
    assert dict(processed.attributes) == {
        "messaging.system": "hypercube",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": result.id,
        "hypercube.job.kind": "note",
        "hypercube.job.attempt": 1,
    }
    assert (sent.status.status_code, processed.status.status_code) == (StatusCode.UNSET,) * 2


def test_each_attempt_can_be_a_trace_of_its_own(box: Any, telemetry: Telemetry) -> None:
    """Then only the link leads to the dispatch."""
    box.jobs.add_observer(telemetry.middleware(new_trace=True))
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: None)
    with telemetry.tracer.start_as_current_span("request"):
        box.jobs.dispatch(Note("x"))
    box.drain()

    sent, processed = telemetry.span("send default"), telemetry.span("process default")
    assert processed.parent is None
    assert processed.context.trace_id != sent.context.trace_id
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]


def test_each_retry_is_a_span_that_says_why_it_failed(box: Any, telemetry: Telemetry) -> None:
    """With the number of its attempt."""
    box.jobs.add_observer(telemetry.middleware())

    @box.jobs.under("plugin").handler("note", retries=1, backoff=Constant(timedelta(0)))
    async def note(job: Note) -> None:
        raise (
            PermanentError("no")
            if trace.get_current_span().attributes["hypercube.job.attempt"] == 2
            else ValueError("not yet")
        )

    box.jobs.under("plugin").dispatch(Note("x"))
    box.drain()

    first, second = telemetry.spans("process default")
    assert [span.attributes["hypercube.job.attempt"] for span in (first, second)] == [1, 2]
    assert [span.attributes["error.type"] for span in (first, second)] == [
        "ValueError",
        "hypercube_jobs.PermanentError",
    ]
    assert first.attributes["hypercube.job.namespace"] == "plugin"
    assert first.status.status_code is StatusCode.ERROR
    assert [event.name for event in first.events] == ["exception"]
    assert first.parent.span_id == second.parent.span_id


def test_a_time_out_is_an_error(box: Any, telemetry: Telemetry) -> None:
    """Though a coroutine is told of it by a cancellation."""
    box.jobs.add_observer(telemetry.middleware())

    @box.jobs.handler("note", retries=0, timeout=timedelta(milliseconds=20))
    async def note(job: Note) -> None:
        await asyncio.sleep(60)

    box.jobs.dispatch(Note("x"))
    box.drain()

    span = telemetry.span("process default")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_a_dispatch_within_a_handler_goes_on_with_the_trace(box: Any, telemetry: Telemetry) -> None:
    """The second job is a child of the first one's attempt."""
    box.jobs.add_observer(telemetry.middleware())

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        if job.text == "first":
            box.jobs.dispatch(Note("second"), queue="other")

    box.jobs.dispatch(Note("first"))
    box.drain(queues=["default", "other"])

    first, sent = telemetry.span("process default"), telemetry.span("send other")
    assert sent.parent.span_id == first.context.span_id
    assert telemetry.span("process other").parent.span_id == sent.context.span_id


def test_a_dispatch_that_fails_is_an_error(box: Any, telemetry: Telemetry) -> None:
    """In its span and in the count."""
    box.jobs.add_observer(telemetry.middleware())
    box.jobs.declare("note", Note)
    box.queue.close()
    with pytest.raises(Exception, match="closed"):
        box.jobs.dispatch(Note("x"))

    span = telemetry.span("send default")
    assert span.status.status_code is StatusCode.ERROR
    (point,) = telemetry.points("messaging.client.sent.messages")
    assert point.attributes["error.type"] == "hypercube_queue.QueueClosed"


def test_baggage_travels(box: Any, telemetry: Telemetry) -> None:
    """By the propagators that are set, and the handler's context is its own."""
    box.jobs.add_observer(telemetry.middleware())
    seen = []

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        seen.append(baggage.get_baggage("tenant"))

    token = contexts.attach(baggage.set_baggage("tenant", "acme"))
    box.jobs.dispatch(Note("x"))
    contexts.detach(token)
    box.drain()
    box.jobs.dispatch(Note("y"))
    box.drain()

    assert seen == ["acme", None]


def test_a_job_of_a_transaction_keeps_the_trace_of_its_dispatch(telemetry: Telemetry) -> None:
    """Though it is stored, or run, when somebody else commits."""
    jobs = Jobs(InlineQueue(), observers=[telemetry.middleware()])
    jobs.declare("note", Note)
    jobs.handler("note")(lambda job: None)
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        connection.begin()
        with telemetry.tracer.start_as_current_span("request") as request:
            jobs.dispatch_within(connection, Note("x"))
        with telemetry.tracer.start_as_current_span("somebody's commit"):
            connection.commit()
    engine.dispose()

    assert telemetry.span("send default").parent.span_id == request.get_span_context().span_id


def test_dispatches_and_attempts_are_counted_and_timed(box: Any, telemetry: Telemetry) -> None:
    """By queue, kind and type of error; ids would be too many."""
    box.jobs.add_observer(telemetry.middleware())

    @box.jobs.handler("note", retries=0)
    def note(job: Note) -> None:
        if job.text == "bad":
            raise ValueError

    for text in ("a", "b", "bad"):
        box.jobs.dispatch(Note(text))
    box.drain()

    (sent,) = telemetry.points("messaging.client.sent.messages")
    assert sent.value == 3
    assert dict(sent.attributes) == {
        "messaging.system": "hypercube",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "hypercube.job.kind": "note",
    }
    consumed = telemetry.points("messaging.client.consumed.messages")
    assert sorted((point.attributes.get("error.type", ""), point.value) for point in consumed) == [
        ("", 2),
        ("ValueError", 1),
    ]
    assert sum(p.count for p in telemetry.points("messaging.process.duration")) == 3
    (times,) = telemetry.points("messaging.client.operation.duration")
    assert times.count == 3


def test_kinds_that_are_not_declared_have_one_label(box: Any, telemetry: Telemetry) -> None:
    """In metrics; a span still says which one it was."""
    box.jobs.add_observer(telemetry.middleware())
    box.queue.push(*(Message("default", b"{}", f"kind{n}") for n in range(5)))
    box.queue.push(*(Message("default", b"{}", "note", f"space{n}") for n in range(5)))
    running = box.start()
    box.until(lambda: len(telemetry.spans("process default")) == 10)
    running.stop()
    running.end()

    for name in ("messaging.client.consumed.messages", "messaging.process.duration"):
        points = [dict(point.attributes) for point in telemetry.points(name)]
        assert {point["hypercube.job.kind"] for point in points} == {"unknown"}
        assert not any("hypercube.job.namespace" in point for point in points)
    kinds = {span.attributes["hypercube.job.kind"] for span in telemetry.spans("process default")}
    assert kinds == {"note", *(f"kind{n}" for n in range(5))}
