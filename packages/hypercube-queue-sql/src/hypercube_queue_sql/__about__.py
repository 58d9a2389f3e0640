"""The version of hypercube-queue-sql."""

__version__ = "1.0.0"
