"""The version of the RabbitMQ driver."""

__version__ = "1.0.0"
