"""The command `hypercube`."""

from __future__ import annotations

from hypercube_jobs._command._app import app, main

__all__ = ["app", "main"]
