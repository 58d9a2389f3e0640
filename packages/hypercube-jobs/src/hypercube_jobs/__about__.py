"""The version of hypercube-jobs."""

__version__ = "1.1.0"
