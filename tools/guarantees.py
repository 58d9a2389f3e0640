"""The table of guarantees, printed from the drivers themselves.

    python tools/guarantees.py            # writes it between the markers of its documents
    python tools/guarantees.py --check    # fails if that would change one

Guarantees and capabilities are known without I/O, so no server is needed.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

from hypercube_queue import CAPABILITIES, Guarantees, capability, open_queue

_ROOT = Path(__file__).resolve().parent.parent
#: What has the table.
DOCUMENTS = (_ROOT / "README.md", _ROOT / "docs/backends.md")
BEGIN = "<!-- guarantees:begin -->"
END = "<!-- guarantees:end -->"

#: One column for each configuration whose promises differ.
CONFIGURATIONS = {
    "memory": "memory://",
    "SQLite, a file": "sqlite:///jobs.db",
    "SQLite, in memory": "sqlite://",
    "PostgreSQL": "postgresql://",
    "MySQL, MariaDB": "mysql://",
    "Redis": "redis://",
    "Valkey": "valkey://",
    "SQS": "sqs://eu-west-1",
    "RabbitMQ, quorum": "amqp://",
    "RabbitMQ, classic": "amqp://?queue_type=classic",
}

#: What None means where a field may be None.
_NONE = {
    "retention": "for good",
    "max_hold": "n/a",  # it means something only without leases
    "queue_name_pattern": "any name",
    "max_message_bytes": "no limit of its own",
}

#: The delay for which the table shows how late a message may be.
_SAMPLE_DELAY = timedelta(minutes=1)


def table() -> str:
    """The table in Markdown: the fields of Guarantees in their order, then the capabilities."""
    rows: dict[str, list[str]] = {field.name: [] for field in fields(Guarantees)}
    rows.update({protocol.__name__: [] for protocol in CAPABILITIES})
    for url in CONFIGURATIONS.values():
        with open_queue(url) as queue:
            for field in fields(Guarantees):
                value = getattr(queue.guarantees, field.name)
                rows[field.name].append(_shown(field.name, value))
            for protocol in CAPABILITIES:
                offered = capability(queue, protocol) is not None
                rows[protocol.__name__].append(_shown(protocol.__name__, offered))
    lines = [("", *CONFIGURATIONS), ("---",) * (len(CONFIGURATIONS) + 1)]
    lines += [(f"`{name}`", *cells) for name, cells in rows.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def with_table(text: str) -> str:
    """`text` with the table of now between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text lacks the markers {BEGIN} and {END}")
    return f"{before}{begin}\n{table()}\n{end}{after}"


def _shown(name: str, value: object) -> str:
    if value is None:
        return _NONE[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, timedelta):
        return _duration(value)
    if callable(value):
        return f"{_duration(value(_SAMPLE_DELAY))} for {_duration(_SAMPLE_DELAY)}"
    return str(value).replace("|", "\\|")


def _duration(value: timedelta) -> str:
    for unit, name in (
        (timedelta(days=1), "d"),
        (timedelta(minutes=1), "min"),
        (timedelta(seconds=1), "s"),
        (timedelta(milliseconds=1), "ms"),
    ):
        if value >= unit and not value % unit:
            return f"{value // unit:,} {name}"
    return f"{value // timedelta(microseconds=1):,} µs"


def main() -> None:
    parser = argparse.ArgumentParser(description="The table of guarantees.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if outdated")
    arguments = parser.parse_args()
    for document in DOCUMENTS:
        present = document.read_text()
        wanted = with_table(present)
        if present == wanted:
            continue
        if arguments.check:
            place = document.relative_to(_ROOT)
            sys.exit(f"{place}: the table of guarantees is outdated; run `nox -s guarantees`")
        document.write_text(wanted)


if __name__ == "__main__":
    main()
