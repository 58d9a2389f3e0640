"""A shop on Django, in one file: a job is dispatched within `transaction.atomic()`.

    pip install hypercube-jobs hypercube-queue-sql django
    python django_orders.py runserver
    hypercube work django_orders:jobs

Both use the file that `SHOP_DB` names, by default orders.db.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import django
from django.conf import settings

FILE = os.environ.get("SHOP_DB", "orders.db")

# What a project has in its settings.py.
settings.configure(
    ALLOWED_HOSTS=["localhost", "testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FILE}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    ROOT_URLCONF=__name__,
    SECRET_KEY="an example has no secrets",  # noqa: S106
)
django.setup()

from django.core.management import execute_from_command_line  # noqa: E402
from django.db import close_old_connections, connection, models, transaction  # noqa: E402
from django.http import HttpRequest, HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402

from hypercube_jobs import Attempt, Jobs, Middleware, PermanentError  # noqa: E402
from hypercube_queue import open_queue  # noqa: E402


class FreshConnections(Middleware):
    """A worker has no requests, at whose ends Django gives up connections that are too old."""

    @contextmanager
    def processing(self, attempt: Attempt) -> Iterator[None]:  # noqa: ARG002  # all are alike
        """Before an attempt and after it, as Django does around a request."""
        close_old_connections()
        try:
            yield
        finally:
            close_old_connections()


jobs = Jobs(open_queue(f"sqlite:///{FILE}"), observers=[FreshConnections()])


class Order(models.Model):  # type: ignore[misc]  # Django ships no types
    """An order."""

    amount = models.IntegerField()
    invoiced = models.BooleanField(default=False)

    class Meta:
        """What a model outside of an application has to say."""

        app_label = "shop"


@dataclass
class SendInvoice:
    """Sends the invoice of an order."""

    order_id: int


@jobs.handler("send_invoice")
def send_invoice(job: SendInvoice) -> None:
    """A synchronous handler, in a thread with a connection of its own."""
    if not Order.objects.filter(pk=job.order_id).update(invoiced=True):
        raise PermanentError(f"there is no order {job.order_id}")


def take_order(request: HttpRequest) -> HttpResponse:
    """Store an order and its job, or neither."""
    amount = int(request.GET["amount"])
    with transaction.atomic():
        order = Order.objects.create(amount=amount)
        jobs.dispatch_within(connection, SendInvoice(order.pk))
        if amount <= 0:
            transaction.set_rollback(True)
            return JsonResponse({"error": "amount is more than zero"}, status=422)
    return JsonResponse({"id": order.pk}, status=201)


def show_order(_request: HttpRequest, order_id: int) -> HttpResponse:
    """Whether the invoice was sent."""
    order = Order.objects.filter(pk=order_id).first()
    if order is None:
        return JsonResponse({"error": f"there is no order {order_id}"}, status=404)
    return JsonResponse({"invoiced": order.invoiced})


urlpatterns = [path("orders", take_order), path("orders/<int:order_id>", show_order)]

with connection.schema_editor() as editor:
    # A project has migrations for this.
    if Order._meta.db_table not in connection.introspection.table_names():
        editor.create_model(Order)


if __name__ == "__main__":
    execute_from_command_line(sys.argv)
