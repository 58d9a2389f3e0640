"""The version of hypercube-queue-conformance."""

__version__ = "1.1.0"
