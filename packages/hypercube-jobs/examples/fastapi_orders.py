"""A shop on FastAPI: orders and jobs are stored in one transaction, from asynchronous code.

    pip install hypercube-jobs hypercube-queue-sql "sqlalchemy[asyncio]" aiosqlite fastapi uvicorn
    uvicorn fastapi_orders:app
    hypercube work fastapi_orders:jobs

Both use the file that `SHOP_DB` names, by default orders.db.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from hypercube_jobs import Jobs, PermanentError
from hypercube_queue import open_queue

FILE = os.environ.get("SHOP_DB", "orders.db")
engine = create_async_engine(f"sqlite+aiosqlite:///{FILE}")
jobs = Jobs(open_queue(f"sqlite:///{FILE}"))


class Base(DeclarativeBase):
    """All tables."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]
    invoiced: Mapped[bool] = mapped_column(default=False)


@dataclass
class SendInvoice:
    """Sends the invoice of an order."""

    order_id: int


@jobs.handler("send_invoice")
async def send_invoice(job: SendInvoice) -> None:
    """The worker runs it on its own event loop."""
    async with AsyncSession(engine) as session, session.begin():
        order = await session.get(Order, job.order_id)
        if order is None:
            raise PermanentError(f"there is no order {job.order_id}")
        order.invoiced = True


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """The tables are there while the application runs."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def take_order(amount: int) -> dict[str, int]:
    """Store an order and its job, or neither."""
    async with AsyncSession(engine) as session, session.begin():
        order = Order(amount=amount)
        session.add(order)
        await session.flush()
        await jobs.dispatch_within_async(session, SendInvoice(order.id))
        if amount <= 0:
            raise HTTPException(422, "amount is more than zero")
        return {"id": order.id}


@app.post("/orders/{order_id}/invoice", status_code=202)
async def send_again(order_id: int) -> dict[str, bool]:
    """Dispatch without a transaction; asked twice, it is sent once."""
    result = await jobs.dispatch_async(SendInvoice(order_id), id=f"again-{order_id}")
    return {"created": bool(result.created)}


@app.post("/orders/{order_id}/invoice-now", status_code=202)
def send_from_a_thread(order_id: int) -> dict[str, str]:
    """FastAPI runs a plain function in a thread, where the plain method is right."""
    return {"job": jobs.dispatch(SendInvoice(order_id)).id}


@app.get("/orders/{order_id}")
async def show_order(order_id: int) -> dict[str, bool]:
    """Whether the invoice was sent."""
    async with AsyncSession(engine) as session:
        order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, f"there is no order {order_id}")
    return {"invoiced": order.invoiced}
