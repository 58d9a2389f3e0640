"""What other queues did on the same servers when they were measured, as text only.

One worker process, a no-op job of about 100 bytes, the best settings found, medians of a
two-core machine. Rates compare within a line; never with a run of today.
"""

from __future__ import annotations

PEERS = {
    "sqlite": (
        "with fsync: huey enqueues 3,268 and drains 2,830 jobs/s (at most once); "
        "persist-queue 3,696 and 1,498 (at least once)",
    ),
    "sqlite-normal": ("without durability: huey enqueues 18,011 and drains 8,037 jobs/s",),
    "memory": ("dramatiq's stub broker enqueues 39,992 and drains 12,780 jobs/s",),
}
