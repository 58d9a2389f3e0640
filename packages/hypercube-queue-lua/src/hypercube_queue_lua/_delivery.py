"""What identifies a delivery."""

from __future__ import annotations

from typing import TypeAlias

from hypercube_queue.driver import Delivery, SettlementItem


class LuaDelivery(Delivery):
    """A delivery's token, and what is stored of the message beside its contents.

    A token is a random number for each pop, so that none comes again when a server forgets its
    newest changes.
    """

    __slots__ = ("job_name", "namespace", "raw_id", "token", "visibility_us")

    def __init__(
        self,
        owner: object,
        queue_name: str,
        id: str,
        *,
        raw_id: bytes,
        token: bytes,
        job_name: str,
        namespace: str,
        visibility_us: int | None,
    ) -> None:
        super().__init__(owner, queue_name, id)
        self.raw_id = raw_id
        self.token = token
        self.job_name = job_name
        self.namespace = namespace
        self.visibility_us = visibility_us


Settled: TypeAlias = SettlementItem[LuaDelivery]
