"""Being told when a transaction of the caller's has committed."""

from __future__ import annotations

from hypercube_jobs._transactions._connections import after_commit, is_async, plain_connection
from hypercube_jobs._transactions._late import Late

__all__ = ["Late", "after_commit", "is_async", "plain_connection"]
