"""The version of the layout and transitions that the Redis and Valkey drivers share."""

__version__ = "1.0.0"
