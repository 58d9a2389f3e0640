"""The examples, each in a process of its own, as users run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HYPERCUBE = Path(sys.executable).with_name("hypercube")
EXAMPLES = Path(__file__).parents[1] / "examples"

FASTAPI = """
import asyncio
import subprocess
import sys

import httpx
from fastapi_orders import app, jobs, lifespan

async def main():
    transport = httpx.ASGITransport(app)
    async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        assert (await client.post("/orders?amount=5")).json() == {"id": 1}
        assert (await client.post("/orders?amount=0")).status_code == 422
        assert (await client.get("/orders/2")).status_code == 404
        assert (await client.get("/orders/1")).json() == {"invoiced": False}
        assert jobs.pending() == 1, jobs.pending()
        assert (await client.post("/orders/1/invoice")).json() == {"created": True}
        assert (await client.post("/orders/1/invoice")).json() == {"created": False}
        assert (await client.post("/orders/1/invoice-now")).status_code == 202
        assert (await client.post("/orders/77/invoice")).json() == {"created": True}
        assert jobs.pending() == 4, jobs.pending()
        work = [sys.argv[1], "work", "fastapi_orders:jobs", "--stop-when-empty"]
        subprocess.run([sys.executable, "-W", "error", *work], check=True, timeout=60)
        assert (await client.get("/orders/1")).json() == {"invoiced": True}
    assert [failed.id for failed in jobs.failed()] == ["again-77"]
    jobs.queue.close()

asyncio.run(main())
"""
DJANGO = """
import django_orders
from django.db import connections
from django.test import Client
from hypercube_jobs import Worker

client, jobs = Client(), django_orders.jobs
assert client.post("/orders?amount=5").json() == {"id": 1}
assert client.post("/orders?amount=0").status_code == 422
assert client.get("/orders/2").status_code == 404
assert client.get("/orders/1").json() == {"invoiced": False}
assert jobs.pending() == 1, jobs.pending()
Worker(jobs, stop_when_empty=True).run()
assert client.get("/orders/1").json() == {"invoiced": True}
jobs.queue.close()
connections.close_all()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples, which keep their files where they run."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


def python(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "SHOP_DB": str(folder / "shop.db")},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_plain_script_takes_orders_and_a_worker_invoices_them(folder: Path) -> None:
    """Two processes with one file."""
    taken = python(folder, "plain_orders.py", "2")
    worked = python(folder, str(HYPERCUBE), "work", "plain_orders:jobs", "--stop-when-empty")

    assert taken.splitlines() == ["took order 1", "took order 2"]
    assert worked.splitlines() == ["sent the invoice of order 1", "sent the invoice of order 2"]


def test_fastapi_stores_an_order_with_its_job(folder: Path) -> None:
    """From asynchronous and synchronous code, in a transaction and without."""
    python(folder, "-c", FASTAPI, str(HYPERCUBE))


def test_django_stores_an_order_with_its_job(folder: Path) -> None:
    """Within atomic()."""
    python(folder, "-c", DJANGO)


def test_the_tests_of_an_application_pass(folder: Path) -> None:
    """As TESTING.md shows them, with all warnings as errors."""
    output = python(folder, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-q", "tests")

    assert "5 passed" in output
