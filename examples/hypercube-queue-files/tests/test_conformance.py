"""The contract, kept by files."""

from __future__ import annotations

from files_harness import FilesHarness

from hypercube_queue_conformance import QueueConformance


class TestFiles(QueueConformance):
    harness = FilesHarness
