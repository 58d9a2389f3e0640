"""Message ids that `push` assigns."""

from __future__ import annotations

from hypercube_queue._ids import new_id, new_ids

__all__ = [
    "new_id",
    "new_ids",
]
