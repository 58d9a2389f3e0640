"""What identifies a delivery."""

from __future__ import annotations

from typing import TypeAlias

from hypercube_queue.driver import Delivery, SettlementItem


class SQLDelivery(Delivery):
    """A delivery's row, and the token the row had when it was handed out.

    A token is a random number for each pop, so that it means nothing in another table that
    happens to count its rows from one as well.
    """

    __slots__ = ("seq", "token")

    def __init__(self, owner: object, queue_name: str, id: str, seq: int, token: int) -> None:
        super().__init__(owner, queue_name, id)
        self.seq = seq
        self.token = token


Settled: TypeAlias = SettlementItem[SQLDelivery]
