"""The limit on database servers: client libraries and plain SQL, as durable as the queue."""

from __future__ import annotations

import psycopg
import pymysql
from tools.backends.instance import Server
from tools.bench.raw import PAYLOAD, Ids

#: Of a message that is taken: later than any moment.
_TAKEN = 1 << 60


class RawPostgreSQL:
    """psycopg: a push, a claim and a delete are a commit each, and one round trip if they can."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(
            "CREATE TABLE raw (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "id text UNIQUE, visible_at bigint, token bigint, payload bytea)"
        )
        self._connection.execute("CREATE INDEX raw_visible ON raw (visible_at, seq)")
        self._ids = Ids()

    def push(self, count: int) -> None:
        insert = "INSERT INTO raw (id, visible_at, payload) VALUES (%s, 0, %s)"
        rows = [(id, PAYLOAD) for id in self._ids.take(count)]
        if count == 1:
            self._connection.execute(insert, rows[0])
            return
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(insert, rows)  # a pipeline: all are sent before the first answer

    def pop_and_ack(self, count: int) -> None:
        # With IN the planner reads the whole table, as long as it has no statistics.
        claimed = self._connection.execute(
            "UPDATE raw SET visible_at = %s, token = 1 WHERE seq = ANY (ARRAY(SELECT seq FROM raw "
            "WHERE visible_at <= 1 ORDER BY visible_at, seq LIMIT %s FOR UPDATE SKIP LOCKED)) "
            "RETURNING seq, id, payload",
            (_TAKEN, count),
            binary=True,
        ).fetchall()
        self._connection.execute(
            "DELETE FROM raw WHERE seq = ANY (%s) AND token = 1", ([row[0] for row in claimed],)
        )

    def close(self) -> None:
        self._connection.close()


class RawMySQL:
    """PyMySQL on MySQL and MariaDB: a push, a claim and a delete are a commit each."""

    def __init__(self, place: Server, database: str) -> None:
        self._connection = connect_mysql(place, database)
        with self._connection.cursor() as cursor:
            # At the default level a claim also locks the gaps between what it takes.
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(
                "CREATE TABLE raw (seq BIGINT AUTO_INCREMENT PRIMARY KEY, "
                "id VARBINARY(255) UNIQUE, visible_at BIGINT, token BIGINT, payload LONGBLOB, "
                "KEY raw_visible (visible_at, seq))"
            )
        self._ids = Ids()

    def push(self, count: int) -> None:
        rows = [(id, 0, PAYLOAD) for id in self._ids.take(count)]
        with self._connection.cursor() as cursor:
            # PyMySQL makes one statement of them, as long as all values are parameters.
            cursor.executemany(
                "INSERT INTO raw (id, visible_at, payload) VALUES (%s, %s, %s)", rows
            )
        self._connection.commit()

    def pop_and_ack(self, count: int) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT seq, id, payload FROM raw WHERE visible_at <= 1 "
                "ORDER BY visible_at, seq LIMIT %s FOR UPDATE SKIP LOCKED",
                (count,),
            )
            seqs = [row[0] for row in cursor.fetchall()]
            cursor.execute(
                "UPDATE raw SET visible_at = %s, token = 1 WHERE seq IN %s", (_TAKEN, seqs)
            )
            self._connection.commit()
            cursor.execute("DELETE FROM raw WHERE seq IN %s AND token = 1", (seqs,))
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


def connect_mysql(place: Server, database: str) -> pymysql.Connection[pymysql.cursors.Cursor]:
    return pymysql.connect(
        host=place.host,
        port=place.port,
        user=place.username,
        password=place.password,
        database=database,
    )
