"""Typed background jobs and their worker on any Hypercube queue."""
