"""A span and a measurement for each dispatch and each attempt."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from hypercube_jobs.__about__ import __version__
from hypercube_jobs._attempt import Attempt
from hypercube_jobs._failure import type_name
from hypercube_jobs._middleware import Dispatch, Middleware

_NAME = "hypercube_jobs"


class OpenTelemetry(Middleware):
    """Traces jobs from their dispatch to their attempts, and counts and times both.

        jobs.add_observer(OpenTelemetry())

    By OpenTelemetry's semantic conventions for messaging: a dispatch is a span `send <queue>`
    of kind PRODUCER, whose context travels with the job by the propagators that are set; an
    attempt is a span `process <queue>` of kind CONSUMER, which is linked to it. It is also its
    child, unless `new_trace`: then each attempt is a trace of its own. The metrics are
    `messaging.client.sent.messages`, `messaging.client.operation.duration`,
    `messaging.client.consumed.messages` and `messaging.process.duration`, by queue, kind and
    type of error; the kinds that are not declared here are all `unknown` there.

    The providers are the global ones if not given.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        new_trace: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
        meter = metrics.get_meter(_NAME, __version__, meter_provider)
        self._new_trace = new_trace
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs that were dispatched"
        )
        self._send_time = meter.create_histogram(
            "messaging.client.operation.duration", "s", "How long dispatches took"
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts at jobs"
        )
        self._process_time = meter.create_histogram(
            "messaging.process.duration", "s", "How long attempts took"
        )

    @contextmanager
    def dispatching(self, dispatch: Dispatch) -> Iterator[None]:
        """See `Middleware.dispatching`."""
        common = _attributes("send", dispatch)
        with (
            _measured(self._sent, self._send_time, common),
            self._tracer.start_as_current_span(
                f"send {dispatch.queue}",
                kind=SpanKind.PRODUCER,
                attributes={**common, "messaging.message.id": dispatch.id},
            ) as span,
            _marked(span),
        ):
            propagate.inject(dispatch.trace)
            yield

    @contextmanager
    def processing(self, attempt: Attempt) -> Iterator[None]:
        """See `Middleware.processing`."""
        common = _attributes("process", attempt)
        measured = common if attempt.declared else _of_unknown_kind(common)
        sent = propagate.extract(attempt.trace)
        creation = trace.get_current_span(sent).get_span_context()
        # Baggage is there for the handler, whoever is the parent.
        token = contexts.attach(sent)
        try:
            with (
                _measured(self._consumed, self._process_time, measured),
                self._tracer.start_as_current_span(
                    f"process {attempt.queue}",
                    context=Context() if self._new_trace else sent,
                    kind=SpanKind.CONSUMER,
                    links=[Link(creation)] if creation.is_valid else [],
                    attributes={
                        **common,
                        "messaging.message.id": attempt.id,
                        "hypercube.job.attempt": attempt.number,
                    },
                ) as span,
                _marked(span),
            ):
                yield
        finally:
            contexts.detach(token)


def _attributes(operation: str, job: Dispatch | Attempt) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "hypercube",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": job.queue,
        "hypercube.job.kind": job.kind,
    }
    if job.namespace:
        attributes["hypercube.job.namespace"] = job.namespace
    return attributes


def _of_unknown_kind(attributes: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Without the names that whoever may push makes up: each would be a series of its own."""
    unknown = {**attributes, "hypercube.job.kind": "unknown"}
    unknown.pop("hypercube.job.namespace", None)
    return unknown


@contextmanager
def _marked(span: Span) -> Iterator[None]:
    """Say in the span how it ended, if it was not well."""
    try:
        yield
    except BaseException as error:
        span.set_attribute("error.type", type_name(error))
        if not isinstance(error, Exception):
            # The SDK sees to the others. This is a time-out, or a shutdown.
            span.set_status(StatusCode.ERROR, type_name(error))
        raise


@contextmanager
def _measured(
    counter: Counter, histogram: Histogram, attributes: dict[str, AttributeValue]
) -> Iterator[None]:
    measured = dict(attributes)
    began = time.perf_counter()
    try:
        yield
    except BaseException as error:
        measured["error.type"] = type_name(error)
        raise
    finally:
        counter.add(1, measured)
        histogram.record(time.perf_counter() - began, measured)
