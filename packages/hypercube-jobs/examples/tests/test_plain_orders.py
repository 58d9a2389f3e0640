"""How the tests of an application look: `python -m pytest tests`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from plain_orders import SendInvoice, engine, orders, remind, send_invoice, take_order
from sqlalchemy import select

from hypercube_jobs import PermanentError
from hypercube_jobs.testing import FakeQueue


def invoiced(order_id: int) -> int | None:
    with engine.connect() as connection:
        return connection.scalar(select(orders.c.invoiced).where(orders.c.id == order_id))


def test_an_order_is_invoiced(fake_jobs: FakeQueue) -> None:
    """What was dispatched can be looked at, and then be run."""
    order_id = take_order(100)
    assert fake_jobs.dispatched(SendInvoice) == [SendInvoice(order_id)]
    assert invoiced(order_id) == 0

    fake_jobs.work()
    assert invoiced(order_id) == 1


def test_an_order_that_is_refused_is_not_invoiced(fake_jobs: FakeQueue) -> None:
    """The transaction was rolled back, and took the job along."""
    with pytest.raises(ValueError, match="amount is 0"):
        take_order(0)

    assert fake_jobs.dispatched(SendInvoice) == []


def test_a_reminder_comes_a_day_later(fake_jobs: FakeQueue) -> None:
    """Time passes when the test says so."""
    order_id = take_order(100)
    fake_jobs.clear()
    assert remind(order_id)
    assert not remind(order_id)

    fake_jobs.travel(timedelta(days=1))
    fake_jobs.work()
    assert fake_jobs.dispatched(SendInvoice) == [SendInvoice(order_id)]
    assert fake_jobs.pending() == 0


@pytest.mark.usefixtures("inline_jobs")
def test_an_order_is_invoiced_inline() -> None:
    """Everything in one go: the job runs right after the commit."""
    assert invoiced(take_order(100)) == 1


def test_a_handler_is_a_function() -> None:
    """It can be called, without any queue."""
    with pytest.raises(PermanentError, match="there is no order 12345"):
        send_invoice(SendInvoice(12345))
