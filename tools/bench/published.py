"""What other queues did when they were measured, as text only; `--peers` measures some anew.

One worker process, a no-op job of about 100 bytes, the best settings found, medians of a
two-core machine. Rates compare within a line; never with a run of today.
"""

from __future__ import annotations

PUBLISHED = {
    "sqlite": (
        "with fsync: huey enqueues 3,268 and drains 2,830 jobs/s (at most once); "
        "persist-queue 3,696 and 1,498 (at least once)",
    ),
    "sqlite-normal": ("without durability: huey enqueues 18,011 and drains 8,037 jobs/s",),
    "memory": ("dramatiq's stub broker enqueues 39,992 and drains 12,780 jobs/s",),
    "redis": (
        "draining, at least once: dramatiq 2,716 jobs/s, taskiq on streams 2,021, arq 1,169, "
        "celery with late ack 832; at most once: huey 2,819",
    ),
    "postgresql": (
        "procrastinate enqueues 811 singly, 5,398 in bulk, and drains 450 jobs/s; "
        "pgqueuer 1,735, 24,000 and 3,814, with batches of 500 it drains 10,483",
    ),
}
