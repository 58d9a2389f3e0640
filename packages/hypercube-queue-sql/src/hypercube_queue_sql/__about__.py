"""The version of hypercube-queue-sql."""

__version__ = "1.1.0"
