"""In which order plugins start, and what stops them all."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from hypercube_plugins import (
    Application,
    Declaration,
    DependencyCycle,
    Plugin,
    Requirement,
    UnmetRequirements,
)
from hypercube_plugins._order import resolved


def names(application: Application) -> list[str]:
    return [each.name for each in application.order()]


def test_plugins_without_requirements_keep_their_order(noted) -> None:
    """The order in which they were added."""
    assert names(Application(noted("c"), noted("a"), noted("b"))) == ["c", "a", "b"]


def test_a_plugin_comes_after_what_it_requires(noted) -> None:
    """Whatever the order in which they were added."""
    application = Application(noted("shop", "mail", "stock"), noted("mail", "base"))
    application.add(noted("stock"), noted("base"))

    assert names(application) == ["stock", "base", "mail", "shop"]


def test_an_order_that_is_right_stays_as_it_is(noted) -> None:
    """Nothing is moved without need."""
    application = Application(noted("a"), noted("z"), noted("b", "a"), noted("y", "z"), noted("c"))

    assert names(application) == ["a", "z", "b", "y", "c"]


def test_all_that_is_missing_or_incompatible_is_reported_at_once(noted, log) -> None:
    """Who needs what and what was found; nothing is registered."""
    application = Application(
        noted("shop", "mail>=2", "stock", "mail!=1.0", version="3"),
        noted("mail", "base<1"),
        noted("base"),
        requires=["search>=4", "base"],
    )

    with pytest.raises(UnmetRequirements) as raised:
        application.setup()

    assert str(raised.value).splitlines() == [
        "5 requirements are not met:",
        "  the application needs search>=4, which is not here",
        "  shop 3 needs mail>=2, but mail 1.0 is here",
        "  shop 3 needs stock, which is not here",
        "  shop 3 needs mail!=1.0, but mail 1.0 is here",
        "  mail 1.0 needs base<1, but base 1.0 is here",
    ]
    assert [each.needs for each in raised.value.missing] == ["search>=4", "stock"]
    assert [each.found for each in raised.value.incompatible] == ["1.0", "1.0", "1.0"]
    assert log == []


def test_a_single_one_is_reported_in_one_line(noted) -> None:
    """It fits on the line of the exception."""
    with pytest.raises(UnmetRequirements) as raised:
        Application(noted("shop", "mail")).setup()

    assert str(raised.value) == "shop 1.0 needs mail, which is not here"


def test_what_was_missing_may_be_added_and_setup_repeated(noted, log) -> None:
    """Nothing had been registered, so nothing is registered twice."""
    application = Application(noted("shop", "mail"))
    with pytest.raises(UnmetRequirements):
        application.setup()

    application.add(noted("mail"))
    application.setup()

    assert log == [("register", "mail"), ("register", "shop")]


@pytest.mark.parametrize(
    ("requires", "path"),
    [
        ({"a": ["a"]}, "a -> a"),
        ({"a": ["b"], "b": ["a"]}, "a -> b -> a"),
        ({"x": ["c"], "a": ["b"], "b": ["c"], "c": ["a"]}, "a -> b -> c -> a"),
        ({"free": [], "b": ["a", "free"], "a": ["b"], "after": ["a"]}, "b -> a -> b"),
    ],
)
def test_a_cycle_stops_setup_with_its_path(noted, log, requires: dict, path: str) -> None:
    """Only the cycle itself, from its plugin that was added first; nothing is registered."""
    application = Application(*(noted(name, *needs) for name, needs in requires.items()))

    with pytest.raises(DependencyCycle) as raised:
        application.setup()

    assert str(raised.value) == f"these plugins need each other: {path}"
    assert raised.value.path == tuple(path.split(" -> "))
    assert log == []


def test_what_is_missing_is_told_before_a_cycle(noted) -> None:
    """It may be part of the way out."""
    with pytest.raises(UnmetRequirements):
        Application(noted("a", "b", "c"), noted("b", "a")).setup()


def test_the_order_can_be_asked_for_without_setup(noted, log) -> None:
    """And registers nothing; afterwards plugins may still be added."""
    application = Application(noted("a"))
    application.order()
    application.add(noted("b"))

    assert names(application) == ["a", "b"]
    assert log == []


def test_a_chain_is_no_matter_of_depth() -> None:
    """Ten thousand plugins that each require the next one, and the same as a cycle."""
    count = 10_000
    chain = [declaration(number, {number + 1} - {count}) for number in range(count)]
    ring = [declaration(number, {(number + 1) % count}) for number in range(count)]

    assert resolved(chain) == chain[::-1]
    with pytest.raises(DependencyCycle) as raised:
        resolved(ring)
    assert len(raised.value.path) == count + 1


# Any set of plugins


def declaration(number: int, needs: set[int]) -> Declaration:
    names = [f"p{need}" for need in sorted(needs)]
    requires = tuple(Requirement(name, canonicalize_name(name), SpecifierSet()) for name in names)
    return Declaration(f"p{number}", Version("1"), requires)


@st.composite
def graphs(draw: st.DrawFn) -> list[set[int]]:
    """For each of some plugins, which of them it requires."""
    count = draw(st.integers(1, 12))
    some = st.sets(st.integers(0, count - 1), max_size=3)
    return [draw(some) for _ in range(count)]


@st.composite
def acyclic_graphs(draw: st.DrawFn) -> list[set[int]]:
    """The same without cycles: each requires some that come earlier in a hidden order."""
    hidden = draw(st.permutations(range(draw(st.integers(1, 12)))))
    needs: list[set[int]] = [set() for _ in hidden]
    for place, number in enumerate(hidden[1:], start=1):
        needs[number] = draw(st.sets(st.sampled_from(hidden[:place]), max_size=3))
    return needs


@given(acyclic_graphs())
def test_any_acyclic_set_is_ordered(needs: list[set[int]]) -> None:
    """Each plugin comes once, after all it requires, and as early as one added first may."""
    order = [int(each.name[1:]) for each in resolved(list(map(declaration, range(99), needs)))]

    assert sorted(order) == list(range(len(needs)))
    for place, number in enumerate(order):
        placed = set(order[:place])
        possible = [
            other for other in range(len(needs)) if other not in placed and needs[other] <= placed
        ]
        assert number == min(possible)


@given(graphs())
def test_any_set_is_ordered_or_refused_with_a_real_cycle(needs: list[set[int]]) -> None:
    """A path along requirements that ends where it began and passes nothing twice."""
    try:
        order = resolved(list(map(declaration, range(99), needs)))
    except DependencyCycle as error:
        path = [int(name[1:]) for name in error.path]
        assert path[0] == path[-1] == min(path)
        assert len(set(path)) == len(path) - 1
        assert all(after in needs[before] for before, after in pairwise(path))
    else:
        assert len(order) == len(needs)
        assert _acyclic(needs)


def _acyclic(needs: list[set[int]]) -> bool:
    """Whether taking away those without requirements, again and again, leaves none."""
    left = set(range(len(needs)))
    while free := {number for number in left if not needs[number] & left}:
        left -= free
    return not left


@given(graphs(), st.data())
def test_a_plugin_that_is_taken_away_is_missed_by_all_who_need_it(
    needs: list[set[int]], data: st.DataObject
) -> None:
    """One line for each, whatever else is wrong."""
    gone = data.draw(st.integers(0, len(needs) - 1))
    rest = [declaration(number, others) for number, others in enumerate(needs) if number != gone]
    missed = [
        f"p{number} 1" for number, others in enumerate(needs) if number != gone and gone in others
    ]

    told: list[str] = []
    try:
        resolved(rest)
    except UnmetRequirements as error:
        told = [each.needed_by for each in error.unmet]
    except DependencyCycle:
        pass

    assert told == missed


def test_a_plugin_declares_nothing_by_default() -> None:
    """No requirements, and methods that do nothing."""

    class Empty(Plugin):
        name = "empty"
        version = "1"

    with Application(Empty()) as application:
        assert [str(each) for each in application.order()] == ["empty 1"]
