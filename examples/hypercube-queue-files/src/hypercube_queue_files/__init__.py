"""Hypercube's queue in files of a directory, shared by the processes of one machine."""

from __future__ import annotations

from hypercube_queue_files._queue import FilesQueue

__all__ = ["FilesQueue"]
