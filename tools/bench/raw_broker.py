"""The limit on RabbitMQ: pika's callbacks, with as many confirms outstanding as a batch has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pika import (  # type: ignore[import-untyped]  # pika ships no types
    BasicProperties,
    BlockingConnection,
    ConnectionParameters,
    PlainCredentials,
    SelectConnection,
)
from tools.backends.instance import Server
from tools.bench.raw import PAYLOAD, Ids

_PERSISTENT = 2
#: Batches that the broker sends ahead, which no queue could that holds nothing back.
_AHEAD = 4
#: Seconds that a step may take.
_PATIENCE = 60


class RawRabbitMQ:
    """One connection in this thread, without another one to wake.

    A push sends its batch and waits for all confirms. A pop takes from a consumer that stays,
    and acknowledges a batch at once.
    """

    def __init__(self, place: Server, queue: str, queue_type: str) -> None:
        self._queue = queue
        self._ids = Ids()
        self._sent = 0
        #: Tags without a confirm, in order.
        self._outstanding: dict[int, None] = {}
        self._tags: list[int] = []
        self._consumer = ""
        self._problem: object = None
        self._connection = SelectConnection(
            _parameters(place),
            on_open_error_callback=self._fail,
            on_close_callback=self._fail,
        )
        self._loop = self._connection.ioloop
        self._loop.activate_poller()
        self._until(lambda: self._connection.is_open)
        self._channel = self._connection.channel(on_open_callback=lambda _: None)
        self._until(lambda: self._channel.is_open)
        self._channel.add_on_return_callback(self._fail)
        self._answered(self._channel.confirm_delivery, self._on_confirm)
        arguments: dict[str, object] = {"x-queue-type": queue_type}
        if queue_type == "quorum":
            arguments |= {"x-delivery-limit": -1}
        self._answered(self._channel.queue_declare, queue, durable=True, arguments=arguments)

    def push(self, count: int) -> None:
        if self._consumer:
            self._answered(self._channel.basic_cancel, self._consumer)
            self._consumer = ""
        for id in self._ids.take(count):
            properties = BasicProperties(delivery_mode=_PERSISTENT, message_id=id)
            self._channel.basic_publish("", self._queue, PAYLOAD, properties, mandatory=True)
            self._sent += 1
            self._outstanding[self._sent] = None
        self._until(lambda: not self._outstanding)

    def pop_and_ack(self, count: int) -> None:
        if not self._consumer:
            self._answered(self._channel.basic_qos, prefetch_count=_AHEAD * max(count, 100))
            self._consumer = self._channel.basic_consume(self._queue, self._on_delivery)
        self._until(lambda: len(self._tags) >= count)
        self._channel.basic_ack(self._tags[count - 1], multiple=True)
        del self._tags[:count]

    def close(self) -> None:
        self._answered(self._channel.queue_delete, self._queue)
        self._connection.close()
        while not self._connection.is_closed:
            self._turn()
        self._loop.deactivate_poller()
        self._loop.close()

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack":
            self._fail(frame)
        if method.multiple:
            for tag in [tag for tag in self._outstanding if tag <= method.delivery_tag]:
                del self._outstanding[tag]
        else:
            del self._outstanding[method.delivery_tag]

    def _on_delivery(self, _channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        self._tags.append(method.delivery_tag)

    def _answered(self, request: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        answers: list[Any] = []
        request(*arguments, callback=answers.append, **options)
        self._until(lambda: bool(answers))

    def _until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not done():
            self._turn()
            if self._problem is not None:
                raise RuntimeError(f"the raw connection failed: {self._problem}")
            if time.monotonic() > end:
                raise TimeoutError(f"the raw connection has done nothing for {_PATIENCE} s")

    def _turn(self) -> None:
        self._loop.poll()
        self._loop.process_timeouts()

    def _fail(self, *problem: object) -> None:
        self._problem = problem


def connect_rabbitmq(place: Server) -> Any:
    """For what need not be fast."""
    return BlockingConnection(_parameters(place))


def _parameters(place: Server) -> Any:
    return ConnectionParameters(
        place.host,
        place.port,
        place.database,
        credentials=PlainCredentials(place.username, place.password),
    )
