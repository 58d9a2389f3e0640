"""Where the messages of this example go: a file, in place of servers."""

from __future__ import annotations

from pathlib import Path


class Outbox:
    """Appends lines to a file, while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_open = False

    def open(self) -> None:
        """Make the file if need be."""
        self.path.touch()
        self._is_open = True

    def close(self) -> None:
        """Take no more lines."""
        self._is_open = False

    def write(self, line: str) -> None:
        """Append a line. Raises RuntimeError unless it is open."""
        if not self._is_open:
            raise RuntimeError(f"{self.path} is not open: was the application booted?")
        with self.path.open("a") as file:
            file.write(f"{line}\n")

    def keep(self, count: int) -> None:
        """Drop all lines but the last ones."""
        lines = self.lines()[-count:]
        self.path.write_text("".join(f"{line}\n" for line in lines))

    def lines(self) -> list[str]:
        """All that was written so far."""
        return self.path.read_text().splitlines()
