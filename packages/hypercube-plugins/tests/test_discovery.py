"""Plugins of installed distributions."""

from __future__ import annotations

import re
import sys

import pytest

from hypercube_plugins import (
    Application,
    AsyncApplication,
    DuplicatePlugin,
    InvalidPlugin,
    PluginFailed,
    UnmetRequirements,
)

GROUP = "hypercube.plugins"
MAIL = """
from hypercube_plugins import Plugin
class Mail(Plugin):
    name = "mail"
    version = "1.2"
class Shop(Plugin):
    name = "shop"
    version = "2.0"
    requires = ["mail>=1"]
mail = Mail()
def make(): return Mail()
"""
BROKEN = "import module_that_nobody_has"


def names(application: Application | AsyncApplication) -> list[str]:
    return [each.name for each in application.order()]


def problems(application: Application | AsyncApplication) -> list[str]:
    with pytest.raises(UnmetRequirements) as raised:
        application.setup()
    return list(map(str, raised.value.unmet))


@pytest.mark.parametrize("value", ["d_mail:Mail", "d_mail:mail", "d_mail:make"])
def test_plugins_are_found_by_their_entry_points(installed, value: str) -> None:
    """A class, an object, or a function that makes one."""
    installed("d", "1", {"d_mail": MAIL}, {GROUP: [f"mail = {value}"]})
    application = Application()
    application.discover()

    assert [str(each) for each in application.order()] == ["mail 1.2"]


def test_nothing_is_found_where_nothing_is_installed() -> None:
    """And that is no error."""
    application = Application()
    application.discover()

    assert names(application) == []


def test_what_is_found_is_ordered_by_name_and_comes_after_what_was_added(installed, noted) -> None:
    """Not by the order of installation; requirements come first all the same."""
    text = MAIL.replace('requires = ["mail>=1"]', "")
    entry_points = ["shop = d_mail:Shop", "mail = d_mail:Mail"]
    installed("d", "1", {"d_mail": text}, {GROUP: entry_points})
    application = Application(noted("zoo", "shop"), noted("yak"))
    application.discover()

    assert names(application) == ["yak", "mail", "shop", "zoo"]


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        (None, [], ["mail", "shop"]),
        (["mail"], [], ["mail"]),
        (["Mail", "other"], [], ["mail"]),
        ([], [], []),
        (None, ["shop"], ["mail"]),
        (None, ["SHOP", "mail"], []),
        (["mail", "shop"], {"shop"}, ["mail"]),
    ],
)
def test_allow_and_deny_choose(installed, allow, deny, expected: list[str]) -> None:
    """Only what is allowed, if anything is said, and never what is denied."""
    installed("d", "1", {"d_mail": MAIL}, {GROUP: ["mail = d_mail:Mail", "shop = d_mail:Shop"]})
    application = Application()
    application.discover(allow=allow, deny=deny)

    assert names(application) == expected


@pytest.mark.parametrize("lists", [{"deny": ["mail"]}, {"allow": ["other"]}])
def test_what_is_kept_out_is_not_even_imported(installed, lists: dict) -> None:
    """A broken one can be left out this way."""
    installed("d", "1", {"d_broken": BROKEN}, {GROUP: ["mail = d_broken:Mail"]})
    application = Application()
    application.discover(**lists)
    application.setup()

    assert "d_broken" not in sys.modules


def test_who_requires_what_is_kept_out_is_told_so(installed, noted) -> None:
    """It is installed, and still missing."""
    installed("d", "1", {"d_mail": MAIL}, {GROUP: ["mail = d_mail:Mail"]})
    application = Application(noted("shop", "mail>=1"))
    application.discover(deny=["mail"])

    assert problems(application) == [
        "shop 1.0 needs mail>=1, which is installed, but kept out by allow or deny"
    ]


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        ({"allow": "mail"}, "allow is a list of names, such as ['mail']"),
        ({"deny": "mail"}, "deny is a list of names, such as ['mail']"),
    ],
)
def test_a_name_is_no_list(lists: dict, text: str) -> None:
    """A str would be read letter by letter."""
    with pytest.raises(InvalidPlugin, match=re.escape(text)):
        Application().discover(**lists)


def test_a_plugin_that_was_added_by_hand_stays(installed, noted) -> None:
    """With its own settings; the one on offer is not imported."""
    installed("d", "1", {"d_broken": BROKEN}, {GROUP: ["Mail = d_broken:Mail"]})
    application = Application(noted("mail", version="7"))
    application.discover()

    assert [str(each) for each in application.order()] == ["mail 7"]
    assert "d_broken" not in sys.modules


def test_discovery_may_be_repeated(installed) -> None:
    """Once for each list, say: what is there already is passed over."""
    installed("d", "1", {"d_mail": MAIL}, {GROUP: ["mail = d_mail:Mail", "shop = d_mail:Shop"]})
    application = Application()
    application.discover(allow=["mail"])
    application.discover()

    assert names(application) == ["mail", "shop"]


def test_a_plugin_that_fails_to_import_is_reported_like_a_missing_requirement(
    installed, noted, log
) -> None:
    """Together with the others, before anything is registered; the reasons are the cause."""
    installed(
        "d",
        "3.1",
        {"d_mail": MAIL, "d_broken": BROKEN, "d_raising": "raise ValueError('no licence')"},
        {GROUP: ["mail = d_broken:Mail", "stock = d_raising:Stock", "tax = d_mail:Nothing"]},
    )
    application = Application(noted("shop", "mail>=1", "search"), noted("a", "mail"))
    application.discover()

    with pytest.raises(UnmetRequirements) as raised:
        application.setup()

    broken = (
        "which cannot be loaded from d_broken:Mail of d 3.1: "
        "ModuleNotFoundError: No module named 'module_that_nobody_has'"
    )
    lines = [str(each) for each in raised.value.missing]
    assert lines[0] == (
        "the application needs stock, which cannot be loaded from d_raising:Stock of d 3.1: "
        "ValueError: no licence"
    )
    assert lines[1].startswith(
        "the application needs tax, which cannot be loaded from d_mail:Nothing of d 3.1: "
        "AttributeError: "
    )
    assert lines[2:] == [
        f"shop 1.0 needs mail>=1, {broken}",
        "shop 1.0 needs search, which is not here",
        f"a 1.0 needs mail, {broken}",
    ]
    assert [type(each) for each in raised.value.__cause__.exceptions] == [
        ModuleNotFoundError,
        ValueError,
        AttributeError,
    ]
    assert log == []


def test_a_plugin_that_fails_to_import_may_be_replaced_by_hand(installed, noted) -> None:
    """Then nothing is missing."""
    installed("d", "1", {"d_broken": BROKEN}, {GROUP: ["mail = d_broken:Mail"]})
    application = Application()
    application.discover()
    application.add(noted("mail"))

    assert names(application) == ["mail"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("d_mail:Shop", "InvalidPlugin: its entry point is named 'mail', and the plugin 'shop'"),
        ("d_mail", "InvalidPlugin: a plugin is an object of a subclass of Plugin or AsyncPlugin"),
        ("d_mail:Mail.name", "InvalidPlugin: a plugin is an object of a subclass of Plugin or"),
    ],
)
def test_an_entry_point_that_is_no_plugin_is_reported_alike(
    installed, value: str, text: str
) -> None:
    """Or one by another name: allow and deny would miss it."""
    installed("d", "1", {"d_mail": MAIL}, {GROUP: [f"mail = {value}"]})
    application = Application()
    application.discover()

    (problem,) = problems(application)

    assert text in problem


def test_an_asynchronous_plugin_needs_an_asynchronous_application(installed) -> None:
    """The other one reports it, and can deny it."""
    text = MAIL.replace("Plugin", "AsyncPlugin")
    installed("d", "1", {"d_mail": text}, {GROUP: ["mail = d_mail:Mail"]})
    synchronous, asynchronous = Application(), AsyncApplication()
    synchronous.discover()
    asynchronous.discover()

    (problem,) = problems(synchronous)

    assert "InvalidPlugin: the plugin mail is asynchronous; add it to an Async" in problem
    assert names(asynchronous) == ["mail"]


def test_two_distributions_cannot_offer_one_name(installed) -> None:
    """Unless the name is denied; the same entry point seen twice is one."""
    installed("d1", "1", {"d_mail": MAIL}, {GROUP: ["mail = d_mail:Mail"]})
    installed("d2", "1", {}, {GROUP: ["mail = d_mail:Mail"]})
    application = Application()
    application.discover()
    assert names(application) == ["mail"]

    installed("d3", "5", {}, {GROUP: ["Mail = d_other:Mail"]})
    with pytest.raises(DuplicatePlugin, match=r"several distributions offer a plugin '[Mm]ail': "):
        Application().discover()
    Application().discover(deny=["mail"])


def test_an_application_may_require_what_it_hopes_to_discover(installed) -> None:
    """So that a deployment without it does not start."""
    installed("d", "1", {"d_mail": MAIL}, {GROUP: ["mail = d_mail:Mail"]})
    application = Application(requires=["mail>=2", "stock"])
    application.discover()

    assert problems(application) == [
        "the application needs mail>=2, but mail 1.2 is here",
        "the application needs stock, which is not here",
    ]


def test_a_found_plugin_runs_like_any_other(installed) -> None:
    """Its failures name it."""
    text = MAIL + "\n    def boot(self, services): raise OSError('no')\n"
    text = text.replace("mail = Mail()\ndef make(): return Mail()\n", "")
    installed("d", "1", {"d_mail": text}, {GROUP: ["mail = d_mail:Mail", "shop = d_mail:Shop"]})
    application = Application()
    application.discover()

    with (
        pytest.raises(PluginFailed, match=r"^the plugin shop failed in boot: OSError: no$"),
        application,
    ):
        pass
