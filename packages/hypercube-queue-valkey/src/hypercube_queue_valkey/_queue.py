"""The driver object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from glide_sync import GlideClient, GlideClusterClient, NodeAddress

from hypercube_queue import InvalidArgument
from hypercube_queue_lua import DEFAULT_PREFIX, LuaQueue, Options
from hypercube_queue_valkey._client import ValkeyClient
from hypercube_queue_valkey._clients import AnyClient

_KIND = "Valkey queue"


class ValkeyQueue(LuaQueue):
    """A queue on Valkey or Redis, through a synchronous client of Valkey GLIDE's.

    The client, a `GlideClient` or `GlideClusterClient`, stays the caller's, and nothing is
    contacted before the first call. One client serves all threads; each waiting pop uses a
    further one of the same configuration, which the queue makes and closes.

    `prefix` starts the name of every key: queues with the same one see the same messages.
    `poll_timeout` is how long a pop waits by default, `visibility_timeout` how long a delivery
    owns a message that names no time of its own, `operation_timeout` how long any call may take
    beyond its `wait`.

    A waiting pop is woken at once by whatever becomes visible, and within a second where its
    wake-up is lost with another process (POP-7).

    In a forked child every call raises BackendError; a queue that was opened by URL opens its
    own connections there (LIFE-4).
    """

    def __init__(
        self,
        client: AnyClient,
        *,
        prefix: str = DEFAULT_PREFIX,
        poll_timeout: timedelta = timedelta(seconds=1),
        visibility_timeout: timedelta = timedelta(seconds=30),
        operation_timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        if not isinstance(client, GlideClient | GlideClusterClient):
            raise InvalidArgument(
                "client is a glide_sync.GlideClient or GlideClusterClient, not "
                f"{type(client).__name__}; open_queue takes a URL, and AsyncQueue makes the "
                "queue asynchronous"
            )
        options = Options(
            prefix=prefix,
            poll_timeout=poll_timeout,
            visibility_timeout=visibility_timeout,
            operation_timeout=operation_timeout,
        )
        # GLIDE has no other way to say how a client was made.
        configuration = client._config
        adapter = ValkeyClient(
            lambda _: type(client).create(configuration),
            "valkey",
            cluster=isinstance(client, GlideClusterClient),
            borrowed=client,
        )
        super().__init__(adapter, options, kind=_KIND)

    @classmethod
    def _opened(
        cls,
        make: Callable[[Sequence[NodeAddress]], AnyClient],
        place: str,
        options: Options,
        *,
        cluster: bool,
        has_choice: bool,
    ) -> ValkeyQueue:
        """A queue over clients that it makes, and closes, itself."""
        queue = cls.__new__(cls)
        client = ValkeyClient(make, place, cluster=cluster, has_choice=has_choice)
        LuaQueue.__init__(queue, client, options, kind=_KIND)
        return queue
