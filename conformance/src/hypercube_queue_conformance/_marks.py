"""What a conformance test proves, and what it takes to run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hypercube_queue_conformance._rules import RULES

if TYPE_CHECKING:
    from hypercube_queue_conformance._harness import Harness

F = TypeVar("F", bound=Callable[..., None])

#: A reason why a test does not apply to a driver, or None if it does.
Condition = Callable[["type[Harness]"], str | None]


@dataclass(slots=True)
class Marks:
    """What the decorators of one test say."""

    rules: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    #: Hooks and capabilities without which the test does not apply.
    needs: tuple[str | type, ...] = ()


def marks_of(test: object) -> Marks:
    """The marks of a test function; empty for a function of somebody else's."""
    marks = getattr(test, "__conformance__", None)
    return marks if isinstance(marks, Marks) else Marks()


def rule(*ids: str) -> Callable[[F], F]:
    """The test proves these rules; its name starts with the first of them."""
    if unknown := [id for id in ids if id not in RULES]:
        raise ValueError(f"no such rule: {', '.join(unknown)}")

    def mark(test: F) -> F:
        _marks(test).rules = ids
        return test

    return mark


def needs(*wanted: str | type) -> Callable[[F], F]:
    """The test applies where the harness has these hooks, and declares these capabilities."""

    def condition(harness: type[Harness]) -> str | None:
        for each in wanted:
            if isinstance(each, str):
                if reason := harness.missing(each):
                    return f"the harness has no {each}: {reason}"
            elif each not in harness.capabilities:
                return f"the driver declares no {each.__name__}"
        return None

    def mark(test: F) -> F:
        _marks(test).needs += wanted
        return _conditional(condition)(test)

    return mark


def lacks(hook: str) -> Callable[[F], F]:
    """The test applies where the harness says that it cannot have this hook."""

    def condition(harness: type[Harness]) -> str | None:
        return None if harness.missing(hook) else f"the harness has {hook}"

    return _conditional(condition)


def when(**guarantees: object) -> Callable[[F], F]:
    """The test applies where the declared guarantees have these values."""

    def condition(harness: type[Harness]) -> str | None:
        for name, value in guarantees.items():
            declared = getattr(harness.guarantees, name)
            if declared != value:
                return f"guarantees.{name} is {declared!r}"
        return None

    return _conditional(condition)


def unless(**guarantees: object) -> Callable[[F], F]:
    """The test applies where none of the declared guarantees has this value."""

    def condition(harness: type[Harness]) -> str | None:
        for name, value in guarantees.items():
            if getattr(harness.guarantees, name) == value:
                return f"guarantees.{name} is {value!r}"
        return None

    return _conditional(condition)


def _conditional(condition: Condition) -> Callable[[F], F]:
    def mark(test: F) -> F:
        _marks(test).conditions += (condition,)
        return test

    return mark


def _marks(test: Callable[..., None]) -> Marks:
    marks = marks_of(test)
    test.__conformance__ = marks  # type: ignore[attr-defined]  # functions take attributes
    return marks
