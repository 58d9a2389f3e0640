"""The server in a process of its own."""

from __future__ import annotations

import argparse
import threading

from tools.strict_sqs.serving import StrictSQS


def main() -> None:
    parser = argparse.ArgumentParser(prog="strict_sqs")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each answer is late")
    arguments = parser.parse_args()
    with StrictSQS(arguments.port) as strict:
        strict.faults.delay = arguments.delay
        print(strict.endpoint, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
