"""SQLite drivers with one fault each, in what a driver in memory has not got at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from breakable_sqlite import BreakableHarness

from hypercube_queue import AlreadyExists, BackendError, BatchError, Message, Queue
from hypercube_queue_sql import DEFAULT_TABLE, SQLQueue


class Mutant(BreakableHarness):
    """One broken driver. Random calls do not find it: they have no faults and transactions."""

    rule: ClassVar[str]


class CausesAreLost(Mutant):
    rule = "ERR-4"

    class queue_type(SQLQueue):
        def pop(self, *args: Any, **options: Any) -> list[Message]:
            try:
                return super().pop(*args, **options)
            except BackendError as error:
                raise BackendError(str(error)) from None


class NothingIsPermanent(Mutant):
    rule = "ERR-7"

    class queue_type(SQLQueue):
        def pop(self, *args: Any, **options: Any) -> list[Message]:
            try:
                return super().pop(*args, **options)
            except BackendError as error:
                raise BackendError(str(error)) from error.__cause__


class ConnectionsThatEndedDoNotComeBack(Mutant):
    rule = "LIFE-2"

    class queue_type(SQLQueue):
        _file: int | None = None

        def _check_file(self) -> None:
            there = Path(self._dialect._engine.url.database or "").stat().st_ino
            self._file = self._file or there
            if self._file != there:
                raise BackendError("the connection is closed")

        def push(self, *messages: Message) -> None:
            super().push(*messages)
            self._check_file()

        def pop(self, *args: Any, **options: Any) -> list[Message]:
            self._check_file()
            return super().pop(*args, **options)


class UnknownOptionsAreIgnored(Mutant):
    rule = "LIFE-3"

    def __init__(self) -> None:
        super().__init__()
        # Where the entry point finds it: a run of pytest within another imports modules anew.
        opening = import_module("hypercube_queue_sql._sqlite_open")
        from_url = opening.from_url

        def careless(url: str) -> Queue:
            return from_url(url.replace("no_such_option=1", ""))

        self.undo.enter_context(patch.object(opening, "from_url", careless))


class UnreadableMessagesAreDropped(Mutant):
    rule = "POP-8"

    class queue_type(SQLQueue):
        def pop(self, *args: Any, **options: Any) -> list[Message]:
            def drop(cursor: Any, faults: Sequence[tuple[int, str]], token: int) -> None:
                for seq, _ in faults:
                    cursor.execute(f"DELETE FROM {DEFAULT_TABLE} WHERE seq = ?", [seq])

            with patch.object(self._dialect, "set_aside", drop):
                return super().pop(*args, **options)


class UnreadableMessagesAreCounted(Mutant):
    rule = "RED-6"

    class queue_type(SQLQueue):
        def redrive(self, queue_name: str, count: int) -> int:
            moved = super().redrive(queue_name, count)
            return moved + len(self.dead_letters(queue_name, 10))


class NothingWaitsForTheCommit(Mutant):
    rule = "TXN-1"

    class queue_type(SQLQueue):
        def push_within(self, connection: object, *messages: Message) -> None:
            self.push(*messages)


class AnyDatabaseIsTaken(Mutant):
    rule = "TXN-1"

    class queue_type(SQLQueue):
        def push_within(self, connection: object, *messages: Message) -> None:
            with patch.object(self._dialect, "_difference", return_value=None):
                super().push_within(connection, *messages)


class EveryConnectionIsSaidToShareTheDatabase(Mutant):
    rule = "TXN-1"

    class queue_type(SQLQueue):
        def shares_database(self, connection: object) -> bool:
            return True


class AnExistingIDEndsTheTransaction(Mutant):
    rule = "TXN-2"

    class queue_type(SQLQueue):
        def push_within(self, connection: Any, *messages: Message) -> None:
            try:
                super().push_within(connection, *messages)
            except BatchError as error:
                if error.split(AlreadyExists)[0]:
                    connection.rollback()
                raise


class AFailureWithinIsKeptQuiet(Mutant):
    rule = "TXN-3"

    class queue_type(SQLQueue):
        def push_within(self, connection: object, *messages: Message) -> None:
            try:
                super().push_within(connection, *messages)
            except BatchError as error:
                if error.split((BackendError, AlreadyExists))[1]:
                    raise


class DelaysWithinAreDoubled(Mutant):
    rule = "TXN-4"

    class queue_type(SQLQueue):
        def push_within(self, connection: object, *messages: Message) -> None:
            later = [replace(each, delay=2 * each.delay) for each in messages]
            super().push_within(connection, *later)


#: All of them by name.
MUTANTS = {mutant.__name__: mutant for mutant in Mutant.__subclasses__()}
