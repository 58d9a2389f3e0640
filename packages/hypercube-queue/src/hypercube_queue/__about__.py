"""The version of the contract package, which is also the version of the contract."""

__version__ = "1.0.0"
