"""The version of the Valkey driver."""

__version__ = "1.0.0"
