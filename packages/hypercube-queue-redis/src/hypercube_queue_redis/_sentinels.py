"""Which primary the Sentinels name."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

from redis import Redis, Sentinel
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import MasterNotFoundError

#: The number of a configuration, which grows with each failover, and the primary in it.
_Named: TypeAlias = tuple[int, tuple[str, int]]


class Sentinels(Sentinel):
    """Sentinels, of which the one with the newest configuration is believed.

    redis-py believes the first one that answers. If that was cut off together with an old
    primary, it goes on naming it. Here they are asked until a majority agrees; one that was
    silent is asked last from then on.
    """

    def __init__(self, sentinels: list[tuple[str, int]], **kwargs: Any) -> None:
        super().__init__(sentinels, **kwargs)  # type: ignore[no-untyped-call]
        self._silent: frozenset[Redis] = frozenset()

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """The address of the primary; raises MasterNotFoundError if nobody names one."""
        named: Counter[_Named] = Counter()
        silent = []
        failures = []
        for sentinel in sorted(self.sentinels, key=self._silent.__contains__):
            try:
                states: Any = sentinel.sentinel_masters()
            except (RedisConnectionError, RedisTimeoutError) as error:
                silent.append(sentinel)
                failures.append(str(error))
                continue
            state = states.get(service_name)
            if state and self.check_master_state(state, service_name):  # type: ignore[no-untyped-call]
                address = (self._force_master_ip or state["ip"], int(state["port"]))
                each = (int(state["config-epoch"]), address)
                named[each] += 1
                if named[each] > len(self.sentinels) / 2:
                    break
        self._silent = frozenset(silent)
        if named:
            return max(named)[1]
        raise MasterNotFoundError(
            f"no Sentinel names a primary for {service_name!r}"
            + "".join(f"; {each}" for each in failures)
        )
