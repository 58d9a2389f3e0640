"""A shop as a plain script: an order and the job that invoices it are stored together.

    pip install hypercube-jobs hypercube-queue-sql
    python plain_orders.py 3
    hypercube work plain_orders:jobs --stop-when-empty

The first command takes so many orders, the second one invoices them. Both use the file that
`SHOP_DB` names, by default orders.db.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, insert, update

from hypercube_jobs import Exponential, Jobs, PermanentError
from hypercube_queue import open_queue

URL = f"sqlite:///{os.environ.get('SHOP_DB', 'orders.db')}"
engine = create_engine(URL)
jobs = Jobs(open_queue(URL))

metadata = MetaData()
orders = Table(
    "orders",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("amount", Integer, nullable=False),
    Column("invoiced", Integer, nullable=False, default=0),
)
metadata.create_all(engine)


@dataclass
class SendInvoice:
    """Sends the invoice of an order."""

    order_id: int


@jobs.handler("send_invoice", retries=5, backoff=Exponential(timedelta(seconds=10)))
def send_invoice(job: SendInvoice) -> None:
    """Run twice, it does no more than run once: it sets what may be set already."""
    with engine.begin() as connection:
        change = update(orders).where(orders.c.id == job.order_id).values(invoiced=1)
        if not connection.execute(change).rowcount:
            raise PermanentError(f"there is no order {job.order_id}")
    print("sent the invoice of order", job.order_id)


def take_order(amount: int) -> int:
    """Store an order, and with it the job; return its number. Raises ValueError."""
    with engine.begin() as connection:
        new = insert(orders).values(amount=amount).returning(orders.c.id)
        order_id: int = connection.execute(new).scalar_one()
        jobs.dispatch_within(connection, SendInvoice(order_id))
        if amount <= 0:
            # Neither the order nor the job will have been.
            raise ValueError(f"amount is {amount}; it is more than zero")
    return order_id


def remind(order_id: int) -> bool:
    """Send the invoice again in a day; False if that is on its way already."""
    reminder = jobs.dispatch(
        SendInvoice(order_id), id=f"reminder-{order_id}", delay=timedelta(days=1)
    )
    return bool(reminder.created)


if __name__ == "__main__":
    for amount in range(1, int(sys.argv[1]) + 1):
        print("took order", take_order(amount))
