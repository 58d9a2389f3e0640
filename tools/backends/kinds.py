"""Every kind of server, by the name that tests use."""

from __future__ import annotations

from tools.backends.kind import Kind
from tools.backends.mysql import MariaDB, MySQL
from tools.backends.pgbouncer import PgBouncer
from tools.backends.postgres import Postgres
from tools.backends.rabbitmq import RabbitMQ, RabbitMQ40, RabbitMQCluster
from tools.backends.redis import (
    Redis,
    RedisCluster,
    RedisReplicatedCluster,
    RedisSentinel,
    Valkey,
    ValkeyCluster,
    ValkeyReplicatedCluster,
)
from tools.backends.sqs import Ministack, Moto

_ALL: tuple[Kind, ...] = (
    Postgres(),
    PgBouncer(),
    MySQL(),
    MariaDB(),
    Redis(),
    RedisCluster(),
    RedisReplicatedCluster(),
    RedisSentinel(),
    Valkey(),
    ValkeyCluster(),
    ValkeyReplicatedCluster(),
    RabbitMQ(),
    RabbitMQ40(),
    RabbitMQCluster(),
    Moto(),
    Ministack(),
)

KINDS = {kind.name: kind for kind in _ALL}
