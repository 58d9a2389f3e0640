"""For tests of applications: a fake queue, jobs that run inline, and time that travels.

It needs the extra `[testing]`, which brings the memory driver. The fixtures are in
`hypercube_jobs.testing.fixtures`.
"""

from __future__ import annotations

from hypercube_jobs.testing._fake_queue import FakeQueue
from hypercube_jobs.testing._instead import fake, inline

__all__ = ["FakeQueue", "fake", "inline"]
