"""`hypercube guarantees`."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

from hypercube_jobs._command._output import show_json, show_table
from hypercube_jobs._command._source import (
    AppArgument,
    AppOption,
    JSONOption,
    URLOption,
    chosen_app,
    looked_at,
)
from hypercube_queue import CAPABILITIES, Guarantees, capability

#: The delay for which it is shown how late a message may be.
_SAMPLE_DELAY = timedelta(minutes=1)


def guarantees(
    application: AppArgument = None,
    *,
    url: URLOption = None,
    app: AppOption = None,
    json: JSONOption = False,
) -> None:
    """Show what the driver promises, and what it can do; the backend is not contacted."""
    with looked_at(url, chosen_app(application, app)) as source:
        promises = {
            field.name: _value(getattr(source.guarantees, field.name))
            for field in fields(Guarantees)
        }
        abilities = {
            protocol.__name__: capability(source, protocol) is not None for protocol in CAPABILITIES
        }
    if json:
        show_json({"guarantees": promises, "capabilities": abilities})
        return
    rows = [(name, _shown(value)) for name, value in (promises | abilities).items()]
    show_table(("guarantee", "value"), rows)


def _value(value: object) -> str | float | bool | None:
    """As JSON has it; durations in seconds."""
    if callable(value):
        value = value(_SAMPLE_DELAY)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, str | int | float) else None


def _shown(value: str | float | bool | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(timedelta(seconds=value)) if isinstance(value, float) else str(value)
