"""Ids in a DynamoDB table, for all processes of an application."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from hypercube_queue import BackendError, InvalidArgument
from hypercube_queue.driver import chunked
from hypercube_queue_sqs._errors import CLIENT_ERRORS, code_of, translation
from hypercube_queue_sqs._ids import IDState

Item: TypeAlias = dict[str, Any]

#: What one request may delete.
_MOST_DELETES = 25
_REFUSED = "ConditionalCheckFailedException"
#: Words of DynamoDB's own among the attributes.
_NAMES = {"#id": "id", "#holder": "holder", "#stored": "stored", "#expires": "expires_at"}


class DynamoDBIDStore:
    """An item for each id that is taken, written on conditions and with an expiry.

    `client` is a boto3 DynamoDB client, `table` the name of a table whose partition key is the
    string `id`; let its time to live be `expires_at`, or old items stay. A push costs two
    writes for each message, an ack one. Items expire by the clock of whoever writes them.
    """

    def __init__(self, client: Any, table: str) -> None:
        if not callable(getattr(client, "put_item", None)):
            raise InvalidArgument(f"client is a boto3 DynamoDB client, not {type(client).__name__}")
        if not table:
            raise InvalidArgument("table is empty; it is the name of a DynamoDB table")
        self._client = client
        self._table = table
        self._place = f"dynamodb table {table!r}"

    def reserve(
        self, queue: str, ids: Sequence[str], holder: str, pending_for: timedelta
    ) -> Mapping[str, IDState]:
        """See `IDStore.reserve`: one conditional write for each id."""
        return {id: self._reserve(_key(queue, id), holder, pending_for) for id in ids}

    def confirm(self, queue: str, ids: Sequence[str], holder: str, keep_for: timedelta) -> None:
        """See `IDStore.confirm`: one conditional write for each id."""
        for id in ids:
            self._where_held(
                self._client.update_item,
                _key(queue, id),
                "#holder = :holder",
                {":holder": {"S": holder}, ":true": {"BOOL": True}, ":until": _moment(keep_for)},
                UpdateExpression="SET #stored = :true, #expires = :until",
            )

    def cancel(self, queue: str, ids: Sequence[str], holder: str) -> None:
        """See `IDStore.cancel`: one conditional write for each id."""
        for id in ids:
            self._where_held(
                self._client.delete_item,
                _key(queue, id),
                "#holder = :holder AND #stored = :false",
                {":holder": {"S": holder}, ":false": {"BOOL": False}},
            )

    def release(self, queue: str, ids: Sequence[str]) -> None:
        """See `IDStore.release`: 25 ids in a request."""
        for chunk in chunked(dict.fromkeys(ids), _MOST_DELETES):
            left: Item = {
                self._table: [{"DeleteRequest": {"Key": _key(queue, id)}} for id in chunk]
            }
            for _ in range(_MOST_DELETES):
                left = self._delete(left)
                if not left:
                    break
            else:
                raise BackendError(f"{self._place}: it goes on refusing for being asked too much")

    def _reserve(self, key: Item, holder: str, pending_for: timedelta) -> IDState:
        try:
            self._client.put_item(
                TableName=self._table,
                Item={
                    **key,
                    "holder": {"S": holder},
                    "stored": {"BOOL": False},
                    "expires_at": _moment(pending_for),
                },
                # The second happens where the answer to the first attempt was lost.
                ConditionExpression="attribute_not_exists(#id) OR #holder = :holder "
                "OR #expires < :now",
                ExpressionAttributeNames={
                    name: _NAMES[name] for name in ("#id", "#holder", "#expires")
                },
                ExpressionAttributeValues={
                    ":holder": {"S": holder},
                    ":now": {"N": str(int(time.time()))},
                },
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except CLIENT_ERRORS as error:
            if code_of(error) != _REFUSED:
                raise translation(error, self._place) from error
            stored = error.response.get("Item", {}).get("stored", {}).get("BOOL", False)
            return "stored" if stored else "pending"
        return "reserved"

    def _where_held(
        self,
        write: Callable[..., object],
        key: Item,
        condition: str,
        values: Item,
        **more: str,
    ) -> None:
        """A write that does nothing where its condition does not hold."""
        told = f"{condition} {more}"
        try:
            write(
                TableName=self._table,
                Key=key,
                ConditionExpression=condition,
                ExpressionAttributeNames={
                    short: name for short, name in _NAMES.items() if short in told
                },
                ExpressionAttributeValues=values,
                **more,
            )
        except CLIENT_ERRORS as error:
            if code_of(error) != _REFUSED:
                raise translation(error, self._place) from error

    def _delete(self, requests: Item) -> Item:
        """The requests that were too many."""
        try:
            answer = self._client.batch_write_item(RequestItems=requests)
        except CLIENT_ERRORS as error:
            raise translation(error, self._place) from error
        unprocessed: Item = answer.get("UnprocessedItems") or {}
        return unprocessed


def _key(queue: str, id: str) -> Item:
    return {"id": {"S": f"{queue}#{id}"}}


def _moment(after: timedelta) -> Item:
    """So much later than now, in the whole seconds that a time to live is counted in."""
    return {"N": str(math.ceil(time.time() + after.total_seconds()))}
