"""Opening a queue by URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import QueueURL, safe_repr
from hypercube_queue_sqs._clients import Clients, Opened, config, id_config, polling_config
from hypercube_queue_sqs._dynamodb import DynamoDBIDStore
from hypercube_queue_sqs._ids import PROCESS_IDS, IDStore
from hypercube_queue_sqs._options import Options
from hypercube_queue_sqs._queue import SQSQueue
from hypercube_queue_sqs._sessions import Access


def from_url(url: str) -> SQSQueue:
    """The queue that an `sqs:` URL names; nothing is contacted before the first call.

    `sqs://eu-west-1` is a region, `sqs://` the one that boto3 finds; `sqs://KEY:SECRET@eu-west-1`
    has an access key, too, which boto3 finds otherwise. Options: `endpoint` (a URL), `profile`,
    `prefix`, `dead_letter_suffix`, `ensure_queues`, `connections`, `ids` (process or none),
    `id_table` (a DynamoDB table, in the place of `ids`), `id_endpoint`, and in seconds
    `poll_timeout`, `visibility_timeout` and `operation_timeout`.
    """
    parts = QueueURL(url)
    if parts.scheme != "sqs":
        raise InvalidArgument(f"the scheme is {safe_repr(parts.scheme)}; it takes sqs")
    if parts.port is not None or parts.path.strip("/"):
        # Not shown: either may be the rest of a secret key.
        raise InvalidArgument(
            "an sqs URL has a region and no port or path, as in sqs://eu-west-1?endpoint=URL; a "
            "'/' in a secret key is written %2F"
        )
    if (parts.username is None) != (parts.password is None):
        raise InvalidArgument(
            "an sqs URL has both parts of an access key or none: sqs://KEY:SECRET@eu-west-1"
        )
    options = Options.from_url(parts)
    endpoint = _endpoint(parts, "endpoint")
    profile = parts.options.text("profile", None)
    ids = parts.options.choice("ids", "process", ("process", "none"))
    table = parts.options.text("id_table", None)
    id_endpoint = _endpoint(parts, "id_endpoint")
    parts.options.refuse_unknown()
    region = parts.hostname or None
    known = ids == "process" or table is not None

    access = Access(parts.username or None, parts.password or None, region, profile)

    def make() -> Opened:
        limit = options.operation_timeout
        usual = config(options.connections, limit)
        clients = [access.client("sqs", endpoint, usual)]
        clients.append(access.client("sqs", endpoint, polling_config(limit)))
        store: IDStore | None = PROCESS_IDS if known else None
        if table is not None:
            clients.append(
                access.client("dynamodb", id_endpoint, id_config(options.connections, limit))
            )
            store = DynamoDBIDStore(clients[-1], table)
        return Opened(clients[0], clients[1], store, _closing(clients))

    place = f"sqs {region or '(region of boto3)'}{f' at {endpoint}' if endpoint else ''}"
    return SQSQueue._opened(Clients(make), place, options, knows_ids=known)


def _endpoint(parts: QueueURL, option: str) -> str | None:
    value = parts.options.text(option, None)
    if value is None:
        return None
    try:
        found = urlsplit(value)
    except ValueError:
        found = urlsplit("")
    if found.scheme not in ("http", "https") or not found.hostname or "@" in found.netloc:
        # Not shown: somebody may have written a password into it.
        raise InvalidArgument(
            f"option '{option}' of the sqs URL is no endpoint; it takes http://host:port, and "
            "credentials stand before the region"
        )
    return value


def _closing(clients: Sequence[Any]) -> Callable[[], None]:
    def close() -> None:
        for client in clients:
            client.close()

    return close
