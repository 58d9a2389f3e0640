"""What tests and harnesses call: the server that all share, or one to break."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # else imported where it is used, by runs that have servers
    from tools.backends.instance import ExclusiveServer, Server
    from tools.backends.run import Run

#: Where the run keeps what it got.
SERVERS = "servers.json"
MISSING = "missing.json"


class NoServer(Exception):
    """The run does not have this server; the text says why and what to do."""


def server(name: str) -> Server:
    """The server of this name that all tests of the run share.

    Raises NoServer where the conftest of the tests does not ask for it, or where it is missing.
    """
    from tools.backends.instance import Server

    run = _run()
    found = (run.read(SERVERS) or {}).get(name)
    if found is not None:
        return Server.from_json(found)
    missing = (run.read(MISSING) or {}).get(name)
    if missing is not None:
        raise NoServer(
            f"{name} is left out of this run: {missing[0]}; to do: {missing[1]}. Tests that "
            f'need it are marked pytest.mark.server("{name}")'
        )
    raise NoServer(f"no conftest of this run names {name!r} in pytest_hypercube_servers")


@contextmanager
def exclusive(name: str) -> Iterator[ExclusiveServer]:
    """A second server like `server(name)`, for the caller alone until the block ends.

    Waits for its turn among all processes of the run. The first caller starts it; whatever was
    done to it, it works again for the next. Of a server that was given by its address there is
    no second: it is that server then, and only `relay` can break it.
    """
    from tools.backends.instance import ExclusiveServer
    from tools.backends.providing import provide_another
    from tools.backends.run import locked

    run, shared = _run(), server(name)
    kept = f"{name}.exclusive.json"
    with locked(run.folder / f"{name}.lock"):
        found = run.read(kept)
        if found is None:
            label = f"{name.replace('@', '-')}-exclusive"
            found = provide_another(shared, run, label).to_json()
            run.write(kept, found)
        place = ExclusiveServer.from_json(found)
        try:
            place.mend()  # whoever had it before may have been killed
            yield place
        finally:
            try:
                place.mend()
            except BaseException:
                (run.folder / kept).unlink(missing_ok=True)  # the next one starts another
                raise


@contextmanager
def servers(*names: str, install: bool = False) -> Iterator[None]:
    """Servers for a program that is no run of tests: there for `server` until the block ends.

    In the order of ways that tests have; with `install` the last one, too. Raises NoServer with
    the reasons and remedies if any cannot be had.
    """
    if not names:
        yield
        return
    from tools.backends import environment, providing
    from tools.backends.run import OwnRun

    environment.check(names)
    run = OwnRun()
    try:
        found, missing = providing.provide_all(list(names), run, install=install)
        if missing:
            raise NoServer(
                "\n".join(
                    f"{name} cannot be had: {why}; to do: {providing.remedy(name)}"
                    for name, why in missing.items()
                )
            )
        run.write(SERVERS, {name: each.to_json() for name, each in found.items()})
        yield
    finally:
        run.close()


def _run() -> Run:
    from tools.backends.run import Run

    run = Run.current()
    if run is None:
        raise NoServer(
            "this run has no servers: load the plugin by `-p tools.backends`, and name the servers "
            "in pytest_hypercube_servers of a conftest"
        )
    return run
