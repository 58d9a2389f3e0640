"""The version of the memory driver."""

__version__ = "1.0.0"
