"""The version of the SQS driver."""

__version__ = "1.0.0"
