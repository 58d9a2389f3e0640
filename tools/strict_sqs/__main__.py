"""The server in a process of its own, until its standard input ends."""

from __future__ import annotations

import argparse
import sys

from tools.strict_sqs.serving import StrictSQS


def main() -> None:
    parser = argparse.ArgumentParser(prog="strict_sqs")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each answer is late")
    parser.add_argument(
        "--poll-second", type=float, default=1.0, help="how long a second of a long poll takes"
    )
    parser.add_argument("--sampling", action="store_true", help="short polls miss messages")
    arguments = parser.parse_args()
    with StrictSQS(arguments.port) as strict:
        strict.faults.delay = arguments.delay
        strict.faults.poll_second = arguments.poll_second
        strict.faults.sampling = arguments.sampling
        print(strict.endpoint, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
