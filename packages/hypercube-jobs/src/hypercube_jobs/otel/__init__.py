"""Traces and metrics by OpenTelemetry. It needs the extra `[otel]`."""

from __future__ import annotations

from hypercube_jobs.otel._middleware import OpenTelemetry

__all__ = ["OpenTelemetry"]
