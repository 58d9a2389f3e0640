"""The dialect of MySQL and MariaDB."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import pymysql
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import BackendError, Guarantees, InvalidArgument
from hypercube_queue.driver import HEADROOM_BYTES, Deadline, PushItem, chunked
from hypercube_queue_sql._database import DatabaseIdentity
from hypercube_queue_sql._delivery import Settled
from hypercube_queue_sql._dialect import Claim
from hypercube_queue_sql._joined import Joined
from hypercube_queue_sql._mysql_client import (
    PyMySQLClient,
    has_transaction,
    is_duplicate,
    is_missing_savepoint,
    stream,
)
from hypercube_queue_sql._rows import Row, place_in_order, size_of
from hypercube_queue_sql._server import ROWS_PER_STATEMENT, ServerDialect, T

#: For SKIP LOCKED.
_OLDEST_MYSQL, _OLDEST_MARIADB = (8, 0, 1), (10, 6, 0)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
#: What a statement holds beside its rows, and a row beside payload and extra: four names in
#: hexadecimal, and numbers.
_STATEMENT_BYTES = 2 * 1024
_ROW_BYTES = 4 * 2 * 255 + 256
#: Variables that say which server it is; neither product has all of them.
_IDENTITY = ("server_uuid", "server_uid", "hostname", "port", "datadir", "server_id")
#: Of so many queues at most it is remembered that a pop found nothing.
_MOST_IDLE = 10_000
#: How many ids are looked up by one statement where each has a SELECT of its own.
_LOOKUPS = 100
#: More in one statement brings nothing.
_LONGEST_STATEMENT = 16 * 1024 * 1024

#: Queue name and id, as they are stored.
_Key: TypeAlias = tuple[bytes, bytes]


class MySQLDialect(ServerDialect):
    """Keeps the promises of `Dialect` on MySQL and MariaDB, through PyMySQL.

    Both are spoken to alike. Each call is a transaction at READ COMMITTED: rows are locked
    first, and changed when it is known whose they are, since neither has an UPDATE that
    returns rows.
    """

    names = ("mysql", "mariadb")
    libraries = ("pymysql", "MySQLdb")
    statements = "mysql.sql"
    client_class = PyMySQLClient
    one_statement = False
    index_if_not_exists = False
    schema_is_database = True
    now = "timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6))"

    guarantees = Guarantees(durable=True, ordering="fifo")

    #: The most that one statement may have, as the server says.
    _packet_bytes = _LONGEST_STATEMENT

    def _connect(self) -> None:
        super()._connect()
        #: Queues in which the last pop has found nothing.
        self._idle: set[str] = set()

    def check_version(self, cursor: DBAPICursor) -> None:
        [(version, packet_bytes, database)] = self._rows(cursor, "server")
        product, oldest = (
            ("MariaDB", _OLDEST_MARIADB) if "MariaDB" in version else ("MySQL", _OLDEST_MYSQL)
        )
        found = _VERSION.match(version)
        if found is None or tuple(map(int, found.groups())) < oldest:
            raise BackendError(
                f"{self._place} is {product} {version}, and this driver needs "
                f"{'.'.join(map(str, oldest))} or a newer one",
                permanent=True,
            )
        self._packet_bytes = packet_bytes
        self._found_in(self._names.messages.schema or database)

    def identify(self, cursor: DBAPICursor) -> DatabaseIdentity:
        [(name,)] = self._rows(cursor, "database")
        said = {key.lower(): value for key, value in self._rows(cursor, "identity")}
        [(_, cluster)] = self._rows(cursor, "cluster") or [("", "")]
        # In a cluster any server has the database. Another one has an identifier of its own on
        # MySQL, and on MariaDB the rest.
        group = said.get("group_replication_group_name") or cluster.strip("0-")
        server = [said.get(key, "") for key in _IDENTITY]
        address = f"{said.get('hostname')} port {said.get('port')}"
        return DatabaseIdentity((group,) if group else tuple(server), name or "", address)

    def max_message_bytes(self, end: Deadline) -> int:
        self._prepare(end)
        # In hexadecimal each byte takes two.
        return (self._packet_bytes - _STATEMENT_BYTES - _ROW_BYTES) // 2 - HEADROOM_BYTES

    def create_within_lock(
        self, cursor: DBAPICursor, create: Callable[[DBAPICursor], None]
    ) -> None:
        key = f"hypercube_{hashlib.sha256(self._sql['insert'].encode()).hexdigest()[:32]}"
        seconds = math.ceil(self._limit.total_seconds())
        [(taken,)] = self._rows(cursor, "lock", key=key, seconds=seconds)
        if not taken:
            raise BackendError(f"{self._place}: another process has been creating the tables")
        try:
            create(cursor)
        finally:
            with suppress(self.client.error):
                self._rows(cursor, "unlock", key=key)

    def check_transaction(self, beneath: Joined) -> None:
        if isinstance(beneath.connection, pymysql.Connection):
            inside = has_transaction(beneath.connection)
        else:
            inside = self._keeps_savepoint(beneath)
        if not inside:
            raise InvalidArgument(
                "connection is in autocommit mode with no transaction open, so each message "
                "would be committed at once: begin a transaction first"
            )

    def _keeps_savepoint(self, beneath: Joined) -> bool:
        """Whether there is a transaction, where the library does not know: only one keeps it."""

        def probe(cursor: DBAPICursor) -> bool:
            cursor.execute(self._sql["savepoint"])
            try:
                cursor.execute(self._sql["release_savepoint"])
            except beneath.error as error:
                if not is_missing_savepoint(error):
                    raise
                return False
            return True

        return self._connections.within(beneath, probe)

    # Pop

    def take(self, claim: Claim, end: Deadline) -> tuple[list[Row], float | None]:
        queue_name = claim.queue_name
        if queue_name in self._idle:
            # Whoever waits asks by a single statement, which takes no locks.
            seconds = self._next_visible(queue_name, end)
            if seconds is None or seconds > 0:
                return [], seconds

        def lease(cursor: DBAPICursor) -> tuple[list[Row], float | None]:
            rows: list[Row] = []
            seconds: float | None = None
            values = {"queue_name": queue_name.encode(), "limit": claim.limit}
            bytes_left = claim.max_bytes
            for found in map(Row._make, stream(cursor, self._sql["claim"], values)):
                # One is no message and says when the next is visible; what it saw may have come
                # since.
                if found.seq is None:
                    seconds = found.visible_at / 1_000_000
                elif bytes_left > 0:
                    rows.append(found)
                    bytes_left -= size_of((found,))
            rows.sort(key=place_in_order)
            if rows:
                statement = self._sql["lease"].format(seqs=_listed(row.seq for row in rows))
                cursor.execute(statement, {"default_us": claim.visibility_us, "token": claim.token})
            return rows, seconds

        rows, seconds = self.write(lease, end=end)
        if rows:
            self._idle.discard(queue_name)
        elif len(self._idle) < _MOST_IDLE:
            self._idle.add(queue_name)
        return rows, seconds

    def _next_visible(self, queue_name: str, end: Deadline) -> float | None:
        """In how many seconds something becomes visible, None if nothing will by itself."""

        def look(cursor: DBAPICursor) -> tuple[int | None, object]:
            [(left_us, read_only)] = self._rows(
                cursor, "next_visible", queue_name=queue_name.encode()
            )
            return left_us, read_only

        left_us, read_only = self.read(look, end=end)
        if str(read_only) not in ("0", "OFF"):
            # It answers, and others may have got a new server long since: see whether this one
            # takes changes, so that a pop does not wait here for what never comes.
            self.write(lambda cursor: cursor.execute(self._sql["change_nothing"]), end=end)
        return None if left_us is None else left_us / 1_000_000

    # Statements

    def insert(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        return self._insert(cursor, items, self._sql, "seen")

    def insert_within(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        # An INSERT that fails keeps gaps locked until the caller's transaction ends, in which
        # others would store; so what is known to be retained is not tried.
        retained: list[PushItem] = []
        for chunk in self._statements_of(items):
            seen = self._found(cursor, self._sql_within["seen"], chunk)
            there = self._there(cursor, seen)
            retained += [item for item in chunk if _key(item) in there]
            left = [item for item in chunk if _key(item) not in there]
            retained += self._insert(cursor, left, self._sql_within, "retained")
        return retained

    def _insert(
        self, cursor: DBAPICursor, items: Sequence[PushItem], sql: Mapping[str, str], look: str
    ) -> list[PushItem]:
        """Store the items; where some are retained, the statement `look` tells which."""
        retained: list[PushItem] = []
        for chunk in self._statements_of(items):
            left = chunk
            while left:
                rows = ", ".join(map(self._new_row, left))
                try:
                    cursor.execute(sql["insert"].format(rows=rows))
                    break
                except Exception as error:  # of whichever library the caller's connection is
                    there = self._found(cursor, sql[look], left) if is_duplicate(error) else {}
                    if not there:
                        raise
                retained += [item for item in left if _key(item) in there]
                left = [item for item in left if _key(item) not in there]
        return retained

    def _new_row(self, item: PushItem) -> str:
        visibility_us = "NULL" if item.visibility_us is None else str(item.visibility_us)
        return (
            f"({_text(item.queue_name)}, 0, {self.now} + {item.delay_us}, 0, {visibility_us}, "
            f"{_text(item.id)}, {_text(item.job_name)}, {_text(item.namespace)}, "
            f"{_bytes(item.extra)}, {_bytes(item.payload)})"
        )

    def _found(self, cursor: DBAPICursor, look: str, items: Sequence[PushItem]) -> dict[_Key, int]:
        """The keys of the items that a statement finds, with the numbers of the rows."""
        ids: dict[str, list[str]] = {}
        for item in items:
            ids.setdefault(item.queue_name, []).append(_text(item.id))
        # Pairs in one list would not be searched for in the index by MariaDB.
        where = " OR ".join(
            f"queue_name = {_text(name)} AND id IN ({', '.join(each)})"
            for name, each in ids.items()
        )
        cursor.execute(look.format(ids=f"({where})"))
        return {(queue_name, id): seq for queue_name, id, seq in cursor.fetchall()}

    def _there(self, cursor: DBAPICursor, seen: dict[_Key, int]) -> dict[_Key, int]:
        """Those of the rows that are still there."""
        found: dict[_Key, int] = {}
        for chunk in chunked(seen.values(), _LOOKUPS):
            look = self._sql_within["there"]
            cursor.execute(" UNION ALL ".join(look.format(seq=seq) for seq in chunk))
            found |= {(queue_name, id): seq for queue_name, id, seq in cursor.fetchall()}
        return found

    def set_aside(self, cursor: DBAPICursor, faults: Sequence[tuple[int, str]], token: int) -> None:
        for chunk in chunked(faults, ROWS_PER_STATEMENT):
            statement = self._sql["set_aside"].format(
                seqs=_listed(seq for seq, _ in chunk),
                reasons=_cases((seq, _text(reason)) for seq, reason in chunk),
            )
            cursor.execute(statement, {"token": token})

    def ack(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return self._settle(cursor, "ack", items)

    def retry(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return self._settle(cursor, "retry", items, contents=True)

    def dead_letter(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return self._settle(cursor, "dead_letter", items, contents=True)

    def extend_visibility(
        self, cursor: DBAPICursor, items: Sequence[Settled], extension_us: int
    ) -> list[Settled]:
        return self._settle(cursor, "extend_visibility", items, extension_us=extension_us)

    def release(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return self._settle(cursor, "release", items)

    def _settle(
        self,
        cursor: DBAPICursor,
        name: str,
        items: Sequence[Settled],
        *,
        contents: bool = False,
        **values: int,
    ) -> list[Settled]:
        """Run a settlement; return the items that do not own their messages."""
        stale: list[Settled] = []
        for chunk in self._statements_of(items):
            held = self._held(cursor, chunk)
            owned = [item for item in chunk if _is_owned(item, held)]
            if owned:
                statement = self._sql[name].format(
                    seqs=_listed(item.delivery.seq for item in owned),
                    **(_contents(owned) if contents else {}),
                )
                cursor.execute(statement, values)
                if cursor.rowcount < len(owned):
                    # What is locked and still as it was had an expired lease.
                    after = self._held(cursor, owned)
                    seqs = {seq for seq in after if after[seq] == held[seq]}
                    owned = [item for item in owned if item.delivery.seq not in seqs]
            if len(owned) < len(chunk):
                settled = set(map(id, owned))
                stale += [item for item in chunk if id(item) not in settled]
        return stale

    def _held(
        self, cursor: DBAPICursor, items: Sequence[Settled]
    ) -> dict[int, tuple[int | None, int]]:
        """Token and deadline of the rows, which are locked."""
        seqs = _listed(item.delivery.seq for item in items)
        cursor.execute(self._sql["held"].format(seqs=seqs))
        return {seq: (token, visible_at) for seq, token, visible_at in cursor.fetchall()}

    def _by_ids(self, cursor: DBAPICursor, name: str, queue_name: str, ids: Sequence[str]) -> int:
        changed = 0
        for chunk in chunked(ids, ROWS_PER_STATEMENT):
            statement = self._sql[name].format(ids=", ".join(map(_text, chunk)))
            cursor.execute(statement, {"queue_name": queue_name.encode()})
            changed += cursor.rowcount
        return changed

    def _statements_of(self, items: Iterable[T]) -> Iterator[list[T]]:
        """The items of each statement."""
        longest = min(self._packet_bytes, _LONGEST_STATEMENT) - _STATEMENT_BYTES
        return chunked(items, ROWS_PER_STATEMENT, max_bytes=longest, size=_size)


def _size(item: PushItem | Settled) -> int:
    """What the item takes of a statement, at most."""
    return 2 * (len(item.payload) + len(item.extra)) + _ROW_BYTES


def _key(item: PushItem) -> _Key:
    return item.queue_name.encode(), item.id.encode()


def _is_owned(item: Settled, held: dict[int, tuple[int | None, int]]) -> bool:
    row = held.get(item.delivery.seq)
    return row is not None and row[0] == item.delivery.token


def _contents(items: Sequence[Settled]) -> dict[str, str]:
    """What each of the rows gets, with their numbers."""
    return {
        "delays_us": _cases((item.delivery.seq, str(item.delay_us)) for item in items),
        "extras": _cases((item.delivery.seq, _bytes(item.extra)) for item in items),
        "payloads": _cases((item.delivery.seq, _bytes(item.payload)) for item in items),
    }


# Literals, the same in every mode that a session may be in.


def _bytes(value: bytes) -> str:
    return f"X'{value.hex()}'"


def _text(value: str) -> str:
    return _bytes(value.encode())


def _listed(seqs: Iterable[int]) -> str:
    return ", ".join(map(str, seqs))


def _cases(literals: Iterable[tuple[int, str]]) -> str:
    return " ".join(f"WHEN {seq} THEN {literal}" for seq, literal in literals)
