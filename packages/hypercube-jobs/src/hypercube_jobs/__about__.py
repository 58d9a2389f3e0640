"""The version of hypercube-jobs."""

__version__ = "1.0.0"
