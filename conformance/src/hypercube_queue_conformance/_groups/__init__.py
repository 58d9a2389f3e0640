"""The tests, in groups by subject, in the order of the contract."""
