"""Metrics for Prometheus. It needs the extra `[prometheus]`."""

from __future__ import annotations

from hypercube_jobs.prometheus._middleware import Prometheus

__all__ = ["Prometheus"]
