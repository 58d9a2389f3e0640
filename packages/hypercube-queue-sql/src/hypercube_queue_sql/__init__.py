"""Hypercube's queue on SQL databases: SQLite."""
