"""The version of hypercube-queue-conformance."""

__version__ = "1.0.0"
