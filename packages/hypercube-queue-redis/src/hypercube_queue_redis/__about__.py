"""The version of the Redis driver."""

__version__ = "1.0.0"
