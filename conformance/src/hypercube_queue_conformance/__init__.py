"""Proves that a driver keeps Hypercube's queue contract."""
