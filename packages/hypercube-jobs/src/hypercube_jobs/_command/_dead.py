"""`hypercube failed`, `retry` and `forget`: looking after the dead letters."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import Annotated

import typer

from hypercube_jobs import _failed_jobs
from hypercube_jobs._command._output import (
    counted,
    show_json,
    show_list,
    show_moment,
)
from hypercube_jobs._command._source import (
    AppOption,
    JSONOption,
    QueuesOption,
    URLOption,
    app_and_ids,
    looked_at,
    queue_names,
)
from hypercube_jobs._errors import NotSupported
from hypercube_jobs._failed_jobs import FailedJob
from hypercube_jobs._text import lines_of, one_line
from hypercube_queue import DeadLetterStore, InvalidArgument, NotFound, Queue, capability

IDsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODULE:ATTRIBUTE|ID",
        help="Failed jobs; before them a Jobs object, whose queue it is about, in place of a URL.",
        show_default=False,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="All failed jobs of the queues.")]


def failed(
    id: IDsArgument = None,
    *,
    queue: QueuesOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many at most.")] = 20,
    payload: Annotated[
        bool, typer.Option("--payload", help="Show payloads too, which may hold secrets.")
    ] = False,
    url: URLOption = None,
    app: AppOption = None,
    json: JSONOption = False,
) -> None:
    """List failed jobs, newest first, or show some of them with their tracebacks."""
    app, ids = app_and_ids(id, url, app)
    with looked_at(url, app) as source:
        _check_store(source)
        names = queue_names(source, queue)
        every = _failed_jobs.every(source, names, payloads=payload)
        found = [job for job in every if job.id in ids] if ids else list(islice(every, limit + 1))
    missing = [id for id in ids if id not in {job.id for job in found}]
    if missing and not found:
        raise _not_found(missing)
    if json:
        show_json([_as_json(job, payload=payload) for job in found[: None if ids else limit]])
    elif ids:
        for number, job in enumerate(found):
            if number:
                typer.echo()
            _show_one(job, payload=payload)
    elif payload and found:
        raise InvalidArgument("--payload goes with an ID, or with --json")
    elif found:
        _show_list(found[:limit])
        if len(found) > limit:
            typer.echo(f"there are more than these {limit}; --limit shows them")
    else:
        typer.echo("no job has failed")
    if missing:
        raise _not_found(missing)


def retry(
    id: IDsArgument = None,
    *,
    all: AllOption = False,
    queue: QueuesOption = None,
    url: URLOption = None,
    app: AppOption = None,
    json: JSONOption = False,
) -> None:
    """Give failed jobs back to their queues, as new."""
    app, ids = app_and_ids(id, url, app)
    _check_choice(ids, all)
    missing: list[str] = []
    with looked_at(url, app) as source:
        if not all:
            _check_store(source)
        names = queue_names(source, queue)
        if all:
            count = sum(_failed_jobs.retry_all(source, name) for name in names)
        else:
            count, missing = _for_each(_failed_jobs.retry, source, names, ids)
    _show_outcome("retried", count, missing, json)


def forget(
    id: IDsArgument = None,
    *,
    all: AllOption = False,
    queue: QueuesOption = None,
    url: URLOption = None,
    app: AppOption = None,
    json: JSONOption = False,
) -> None:
    """Remove failed jobs for good."""
    app, ids = app_and_ids(id, url, app)
    _check_choice(ids, all)
    missing: list[str] = []
    with looked_at(url, app) as source:
        _check_store(source)
        names = queue_names(source, queue)
        if all:
            count = sum(_failed_jobs.forget_all(source, name) for name in names)
        else:
            count, missing = _for_each(_failed_jobs.forget, source, names, ids)
    _show_outcome("forgot", count, missing, json)


def _check_choice(ids: list[str], all: bool) -> None:
    if ids and all:
        raise InvalidArgument(
            "ids and --all are two ways to say which failed jobs; give one of them"
        )
    if not ids and not all:
        raise InvalidArgument("which failed jobs? Give their ids, or --all")


def _check_store(source: Queue) -> None:
    if capability(source, DeadLetterStore) is None:
        raise NotSupported(
            "this queue's driver cannot tell its dead letters apart; the broker's own tools show "
            "and remove them, and `hypercube retry --all --queue NAME` gives all of them back"
        )


def _for_each(
    change: Callable[[Queue, list[str], tuple[str, ...]], int],
    source: Queue,
    names: list[str],
    ids: list[str],
) -> tuple[int, list[str]]:
    """How many jobs were changed, and the ids that no queue has."""
    counts = {id: change(source, names, (id,)) for id in dict.fromkeys(ids)}
    return sum(counts.values()), [id for id, count in counts.items() if not count]


def _show_outcome(verb: str, count: int, missing: list[str], json: bool) -> None:
    if json:
        show_json({verb: count, "missing": missing})
    else:
        typer.echo(f"{verb} {counted(count, 'job')}")
    if missing:
        raise _not_found(missing)


def _not_found(ids: list[str]) -> NotFound:
    return NotFound(f"no failed job has the id {' nor '.join(map(repr, ids))}")


def _show_list(jobs: list[FailedJob]) -> None:
    rows = [
        (
            job.id or "(unreadable)",
            _kind(job),
            job.queue,
            job.attempt,
            show_moment(job.died_at),
            _reason(job),
        )
        for job in jobs
    ]
    show_list(("id", "kind", "queue", "attempt", "died at (UTC)", "reason"), rows)


def _kind(job: FailedJob) -> str:
    """As logs name it."""
    return f"{job.namespace}:{job.kind}" if job.namespace else job.kind


def _reason(job: FailedJob) -> str:
    """As recorded, but the error's type without the modules it is in."""
    if job.failure is None:
        return job.reason
    return job.reason.replace(job.failure.type, job.failure.type.rpartition(".")[2], 1)


def _show_one(job: FailedJob, *, payload: bool) -> None:
    facts = {
        "id": job.id,
        "kind": _kind(job),
        "queue": job.queue,
        "attempt": str(job.attempt),
        "dispatched at": f"{show_moment(job.dispatched_at)} UTC" if job.dispatched_at else "",
        "died at": f"{show_moment(job.died_at)} UTC",
    }
    for name, value in facts.items():
        if value:
            typer.echo(f"{name + ':':15}{one_line(value)}")
    failure = job.failure
    reason = job.reason if failure is None else f"{failure.type}: {failure.text}"
    _show_text("reason:", reason)
    if payload:
        text, encoded = _text_or_base64(job.payload or b"")
        shown = f"(in base64) {encoded}" if text is None else text
        _show_text("payload:", shown or "")
    if failure is not None and failure.traceback:
        typer.echo("\n" + "\n".join(lines_of(failure.traceback)))


def _show_text(name: str, text: str) -> None:
    """A text of several lines, those after the first below it."""
    first, *others = lines_of(text)
    typer.echo(f"{name:15}{first}")
    for line in others:
        typer.echo(f"{'':15}{line}")


def _text_or_base64(payload: bytes) -> tuple[str | None, str | None]:
    """A payload as somebody can read it, and copy it into `dispatch`; else its bytes."""
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(payload).decode()


def _as_json(job: FailedJob, *, payload: bool) -> dict[str, object]:
    failure = None
    if job.failure is not None:
        failure = asdict(job.failure) | {"at": job.failure.at.isoformat()}
    text, encoded = _text_or_base64(job.payload or b"")
    shown = {"payload": text, "payload_base64": encoded} if payload else {}
    return {
        "id": job.id,
        "kind": job.kind,
        "namespace": job.namespace,
        "queue": job.queue,
        "attempt": job.attempt,
        "dispatched_at": job.dispatched_at.isoformat() if job.dispatched_at else None,
        "died_at": job.died_at.isoformat(),
        "reason": job.reason,
        "failure": failure,
        **shown,
    }
