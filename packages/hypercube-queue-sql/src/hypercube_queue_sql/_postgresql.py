"""The PostgreSQL dialect."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta

from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import BackendError, Guarantees, InvalidArgument, QueueError
from hypercube_queue.driver import Deadline, PushItem, chunked
from hypercube_queue_sql._backlog import BEGINNING, Backlogs
from hypercube_queue_sql._database import DatabaseIdentity
from hypercube_queue_sql._delivery import Settled
from hypercube_queue_sql._dialect import Claim
from hypercube_queue_sql._joined import Joined
from hypercube_queue_sql._listener import Listener, hint
from hypercube_queue_sql._notices import Notices
from hypercube_queue_sql._postgresql_client import PsycopgClient, commits_at_once, own_pid
from hypercube_queue_sql._rows import Row, place_in_order, size_of
from hypercube_queue_sql._server import ROWS_PER_STATEMENT, ServerDialect, statements_of

#: For MATERIALIZED.
_OLDEST = 12
#: A bytea of a gigabyte exists in theory; on its way it takes several times as much memory.
_MAX_MESSAGE_BYTES = 256 * 1024 * 1024
#: What a call that has done its work may wait for others to be told.
_NOTICE_PATIENCE = timedelta(seconds=1)


class PostgreSQLDialect(ServerDialect):
    """Keeps the promises of `Dialect` on PostgreSQL, through psycopg.

    What is one statement commits by itself, in one round trip. Those who wait are told by
    LISTEN and NOTIFY.
    """

    names = ("postgresql",)
    libraries = ("psycopg", "psycopg2")
    statements = "postgresql.sql"
    client_class = PsycopgClient
    now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

    #: What others store is told; this is for what nobody told.
    poll_seconds = 1.0
    guarantees = Guarantees(durable=True, ordering="fifo", max_message_bytes=_MAX_MESSAGE_BYTES)

    def _connect(self) -> None:
        super()._connect()
        # As many channels as there are tables, not queues: names of queues take any character.
        # Nothing of this release is in it, since others meet there, and at the lock.
        digest = hashlib.sha256(repr(self._key[1:]).encode()).hexdigest()
        self._channel = f"hypercube_{digest[:32]}"
        self._backlogs = Backlogs()
        self._notices = Notices(self._notify)
        self._listener = Listener(
            self._connections.detached, self._send, self._channel, self.wakeups
        )

    def check_version(self, cursor: DBAPICursor) -> None:
        [(version, schema, pid)] = self._rows(cursor, "version")
        if pid != own_pid(cursor):
            # A pooler stands between. In transaction mode a statement of another client can have
            # the name that psycopg gives to ours, and run in its place.
            self.client.stop_preparing()
        if version // 10_000 < _OLDEST:
            raise BackendError(
                f"{self._place} is PostgreSQL {version // 10_000}, and this driver needs "
                f"{_OLDEST} or a newer one"
            )
        self._found_in(schema)

    def identify(self, cursor: DBAPICursor) -> DatabaseIdentity:
        # Unlike an address it is the same through a pooler and a socket, and unlike the system
        # identifier it differs in a copy of the server and needs no right.
        [(name, started_us, address, port)] = self._rows(cursor, "database")
        started = datetime.fromtimestamp(started_us / 1_000_000, UTC)
        return DatabaseIdentity(
            (str(started_us),),
            name,
            f"{address or 'local socket'} port {port}, started {started:%Y-%m-%d %H:%M:%S} UTC",
        )

    def create_within_lock(
        self, cursor: DBAPICursor, create: Callable[[DBAPICursor], None]
    ) -> None:
        cursor.execute(self._sql["lock"], {"key": int(self._channel[-15:], 16)})
        create(cursor)

    def check_transaction(self, beneath: Joined) -> None:
        if commits_at_once(beneath.connection):
            raise InvalidArgument(
                "connection is in autocommit mode with no transaction open, so each message "
                "would be committed at once: begin a transaction first"
            )

    # Wake-ups

    @property
    def hears(self) -> bool:
        return self._listener.hears

    def listen(self) -> None:
        self._listener.start()

    def leave_server(self) -> None:
        self._listener.reconnect()

    def stored(self, queue_name: str, count: int) -> None:
        super().stored(queue_name, count)
        self._notices.send(queue_name, count)

    def stored_within(self, cursor: DBAPICursor, queue_name: str, count: int) -> None:
        # Heard when the caller commits.
        if self._notices.allows(queue_name):
            self._rows(cursor, "notify", channel=self._channel, hints=[hint(queue_name, count)])

    def _notify(self, counts: Mapping[str, int]) -> None:
        hints = [hint(name, count) for name, count in counts.items()]
        self._send(hints, Deadline(_NOTICE_PATIENCE))

    def _send(self, texts: Sequence[str], end: Deadline) -> None:
        self._connections.write(
            lambda cursor: self._rows(cursor, "notify", channel=self._channel, hints=list(texts)),
            transaction=False,
            end=end,
        )

    def close(self) -> None:
        self._listener.stop()
        self._notices.flush()
        super().close()

    # Pop

    def take(self, claim: Claim, end: Deadline) -> tuple[list[Row], float | None]:
        start = self._backlogs.start(claim.queue_name)
        values = {
            "queue_name": claim.queue_name.encode(),
            "start": start,
            "limit": claim.limit,
            "max_bytes": claim.max_bytes,
            "default_us": claim.visibility_us,
            "token": claim.token,
        }
        rows, seconds = self._claim(values, end)
        bytes_left = claim.max_bytes - size_of(rows)
        is_full = len(rows) == claim.limit or bytes_left <= 0
        self._backlogs.found(claim.queue_name, rows, start=start, is_full=is_full)
        if not is_full and start > BEGINNING:
            # An error waits for the next call where there is something to return (POP-1).
            with suppress(QueueError) if rows else nullcontext():
                values.update(start=BEGINNING, limit=claim.limit - len(rows), max_bytes=bytes_left)
                more, seconds = self._claim(values, end)
                rows = sorted(more + rows, key=place_in_order)
        return rows, seconds

    def _claim(self, values: Mapping[str, object], end: Deadline) -> tuple[list[Row], float | None]:
        found = self.write(lambda cursor: self._rows(cursor, "claim", **values), end=end)
        if not found:
            return [], None
        rows = list(map(Row._make, found))
        if rows[0].seq is None:
            return [], rows[0].visible_at / 1_000_000
        rows.sort(key=place_in_order)
        return rows, None

    # Statements

    def insert(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        return _insert(cursor, self._sql["insert"], items)

    def insert_within(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        return _insert(cursor, self._sql_within["insert"], items)

    def set_aside(self, cursor: DBAPICursor, faults: Sequence[tuple[int, str]], token: int) -> None:
        for chunk in chunked(faults, ROWS_PER_STATEMENT):
            seqs, reasons = zip(*chunk, strict=True)
            cursor.execute(
                self._sql["set_aside"],
                {
                    "seqs": list(seqs),
                    "reasons": [reason.encode() for reason in reasons],
                    "token": token,
                },
            )

    def ack(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return self._settle(cursor, "ack", items, lambda _chunk: {})

    def retry(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return self._settle(
            cursor,
            "retry",
            items,
            lambda chunk: {
                "delays_us": [item.delay_us for item in chunk],
                "extras": [item.extra for item in chunk],
                "payloads": [item.payload for item in chunk],
            },
        )

    def dead_letter(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return self._settle(
            cursor,
            "dead_letter",
            items,
            lambda chunk: {
                "extras": [item.extra for item in chunk],
                "payloads": [item.payload for item in chunk],
            },
        )

    def extend_visibility(
        self, cursor: DBAPICursor, items: Sequence[Settled], extension_us: int
    ) -> list[Settled]:
        return self._settle(
            cursor, "extend_visibility", items, lambda _chunk: {"extension_us": extension_us}
        )

    def release(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return self._settle(cursor, "release", items, lambda _chunk: {})

    def _settle(
        self,
        cursor: DBAPICursor,
        name: str,
        items: Sequence[Settled],
        values: Callable[[Sequence[Settled]], dict[str, object]],
    ) -> list[Settled]:
        """Run a settlement; return the items that do not own their messages."""
        stale: list[Settled] = []
        for chunk in statements_of(items):
            found = self._rows(
                cursor,
                name,
                seqs=[item.delivery.seq for item in chunk],
                tokens=[item.delivery.token for item in chunk],
                **values(chunk),
            )
            if len(found) < len(chunk):
                # Two deliveries of one message may be in the chunk, an old one and the present.
                settled = set(map(tuple, found))
                stale += [
                    item
                    for item in chunk
                    if (item.delivery.seq, item.delivery.token) not in settled
                ]
        return stale

    def _by_ids(self, cursor: DBAPICursor, name: str, queue_name: str, ids: Sequence[str]) -> int:
        changed = 0
        for chunk in chunked(ids, ROWS_PER_STATEMENT):
            values = {"queue_name": queue_name.encode(), "ids": [each.encode() for each in chunk]}
            cursor.execute(self._sql[name], values)
            changed += cursor.rowcount
        return changed


def _insert(cursor: DBAPICursor, statement: str, items: Sequence[PushItem]) -> list[PushItem]:
    retained: list[PushItem] = []
    for chunk in statements_of(items):
        values = {
            "queue_names": [item.queue_name.encode() for item in chunk],
            "ids": [item.id.encode() for item in chunk],
            "job_names": [item.job_name.encode() for item in chunk],
            "namespaces": [item.namespace.encode() for item in chunk],
            "delays_us": [item.delay_us for item in chunk],
            "visibilities_us": [item.visibility_us for item in chunk],
            "extras": [item.extra for item in chunk],
            "payloads": [item.payload for item in chunk],
        }
        cursor.execute(statement, values)
        retained += [chunk[position - 1] for (position,) in cursor.fetchall()]
    return retained
