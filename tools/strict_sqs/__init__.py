"""Amazon SQS as it is documented, over HTTP and in memory, with faults to order.

Emulators are kinder than the service: they take a stale receipt handle for a good one, or refuse
what it accepts. This server does what the documentation says, and where that says "may", the
unfriendly thing can be ordered.

    with StrictSQS() as strict:
        open_queue(f"sqs://eu-west-1?endpoint={strict.endpoint}")
        strict.faults.throttle("SendMessageBatch", times=2)

`python -m tools.strict_sqs --port 4567` runs it by itself, and `strict_process` in a process of a
program's own.
"""

from __future__ import annotations

from tools.strict_sqs.faults import Faults
from tools.strict_sqs.process import strict_process
from tools.strict_sqs.serving import StrictSQS

__all__ = ["Faults", "StrictSQS", "strict_process"]
