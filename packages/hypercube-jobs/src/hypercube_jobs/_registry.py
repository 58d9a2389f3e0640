"""Which kinds of jobs there are, of which types, and who handles them."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypercube_jobs._codec import Codec, name_of
from hypercube_jobs._errors import DuplicateKind, UnknownKind
from hypercube_jobs._policy import Policy
from hypercube_jobs._text import checked_declared_name
from hypercube_queue import InvalidArgument
from hypercube_queue.checks import checked_name, safe_repr

#: Takes the job; what it returns is ignored, but for the coroutine of an asynchronous one.
Handler: TypeAlias = Callable[[Any], object]


@dataclass(slots=True, eq=False)
class Kind:
    """A declared kind."""

    name: str
    type: type
    codec: Codec[Any]
    policy: Policy
    aliases: tuple[str, ...] = ()
    handler: Handler | None = None
    is_async: bool = False
    namespace: str = ""


class Registry:
    """All kinds of one namespace. Kinds are declared before work starts."""

    def __init__(self, namespace: str = "") -> None:
        self._namespace = namespace
        self._by_name: dict[str, Kind] = {}
        self._by_type: dict[type, list[Kind]] = {}

    def declare(self, name: str, type_: type, policy: Policy, aliases: Iterable[str]) -> Kind:
        """Add a kind. Raises InvalidArgument and DuplicateKind, and then adds nothing."""
        checked_declared_name("kind", name)
        if isinstance(aliases, str):
            raise InvalidArgument(f"aliases is a list of kinds, such as [{aliases!r}], not a str")
        others = tuple(checked_declared_name("alias", alias) for alias in aliases)
        names = (name, *others)
        for taken in names:
            if taken in self._by_name or names.count(taken) > 1:
                raise DuplicateKind(
                    f"the kind {safe_repr(taken)} is declared already; a name means one kind"
                )
        kind = Kind(name, type_, Codec(type_, name), policy, others, namespace=self._namespace)
        for each in names:
            self._by_name[each] = kind
        self._by_type.setdefault(type_, []).append(kind)
        return kind

    def bind(self, kind: Kind, handler: Handler) -> None:
        """Make `handler` the one of `kind`. Raises InvalidArgument and DuplicateKind."""
        if kind.handler is not None:
            raise DuplicateKind(
                f"the kind {safe_repr(kind.name)} has a handler already: {_described(kind.handler)}"
            )
        kind.is_async = check_handler(handler)
        kind.handler = handler

    def all(self) -> list[Kind]:
        """Every kind once, in the order they were declared."""
        return list(dict.fromkeys(self._by_name.values()))

    def get(self, name: str) -> Kind | None:
        """The kind of this name or alias."""
        return self._by_name.get(name)

    def named(self, name: str) -> Kind:
        """The kind of this name or alias. Raises UnknownKind."""
        kind = self._by_name.get(checked_name("kind", name, may_be_empty=False))
        if kind is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise UnknownKind(
                f"no kind {safe_repr(name)} is declared{self._where()}; declared are: {known}"
            )
        return kind

    def of(self, job: object) -> Kind:
        """The kind that `job` is by its type. Raises UnknownKind."""
        kinds = self._by_type.get(type(job), [])
        if len(kinds) == 1:
            return kinds[0]
        what = name_of(type(job))
        if kinds:
            names = ", ".join(kind.name for kind in kinds)
            raise UnknownKind(f"{what} is declared as several kinds ({names}): use dispatch_kind")
        if isinstance(job, type):
            raise InvalidArgument(
                f"the job is the class {name_of(job)} itself; dispatch an object of it, "
                f"{name_of(job)}(...)"
            )
        if inspect.isroutine(job):
            raise InvalidArgument(
                f"the job is the function {_described(job)}; dispatch an object of the type that "
                "its first parameter has"
            )
        if isinstance(job, dict | str):
            raise UnknownKind(
                f"a {type(job).__name__} does not say which kind it is: use "
                "dispatch_kind(kind, payload)"
            )
        raise UnknownKind(
            f"no kind is declared for {what}{self._where()}: declare it with "
            f"jobs.declare(kind, {what})"
        )

    def _where(self) -> str:
        return f" under {safe_repr(self._namespace)}" if self._namespace else ""


def check_handler(handler: Handler) -> bool:
    """Whether it is asynchronous. Raises InvalidArgument if it cannot handle jobs."""
    if not callable(handler):
        raise InvalidArgument(f"a handler is a function of the job, not {type(handler).__name__}")
    plain = _unwrapped(handler)
    function = plain if inspect.isroutine(plain) else type(plain).__call__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(
            f"the handler {_described(handler)} is a generator, whose body would never run; "
            "remove its yield"
        )
    try:
        inspect.signature(handler).bind(None)
    except TypeError:
        raise InvalidArgument(
            f"the handler {_described(handler)} cannot be called with one argument, the job"
        ) from None
    except ValueError:
        pass  # built-in functions may have no signature
    return inspect.iscoroutinefunction(function)


def job_type(handler: Handler, depth: int) -> type:
    """The type that `handler`'s first parameter is annotated with.

    `depth` is how many calls up the code stands that defines the handler: its local names
    may be part of the annotation. Raises InvalidArgument.
    """
    remedy = "annotate it, or declare the kind first with jobs.declare(kind, type)"
    try:
        first = next(iter(inspect.signature(handler).parameters.values()))
    except StopIteration:
        raise InvalidArgument(
            f"the handler {_described(handler)} takes no parameter; it is called with the job"
        ) from None
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the parameters of {_described(handler)} cannot be read; {remedy}"
        ) from error
    plain = _unwrapped(handler)
    frame = sys._getframe(depth)
    try:
        hints = typing.get_type_hints(
            plain if inspect.isroutine(plain) else type(plain).__call__,
            localns=dict(frame.f_locals),
            include_extras=True,
        )
    except Exception as error:
        raise InvalidArgument(
            f"the annotations of {_described(handler)} cannot be resolved ({error}); {remedy}"
        ) from error
    finally:
        del frame
    if first.name not in hints:
        raise InvalidArgument(
            f"the parameter {first.name} of {_described(handler)} has no type; {remedy}"
        )
    found: type = hints[first.name]
    return found


def _unwrapped(handler: Handler) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def _described(handler: Handler) -> str:
    plain = _unwrapped(handler)
    module = getattr(plain, "__module__", None)
    return f"{module}.{getattr(plain, '__qualname__', type(plain).__qualname__)}"
