"""What a plugin may declare, and what not."""

from __future__ import annotations

import re

import pytest

from hypercube_plugins import (
    RESERVED_NAMES,
    Application,
    AsyncApplication,
    AsyncPlugin,
    DuplicatePlugin,
    InvalidPlugin,
    Plugin,
    ReservedName,
    UnmetRequirements,
)


def plugin(**declared: object) -> Plugin:
    """A plugin whose class declares this, and no more."""
    return type("Sample", (Plugin,), declared)()


@pytest.mark.parametrize("name", ["a", "mail", "Mail", "link-check", "link_check", "s3", "a.b"])
def test_names_are_those_of_distributions(name: str) -> None:
    """Letters, digits, and - _ . between them."""
    application = Application(plugin(name=name, version="1"))

    assert [each.name for each in application.order()] == [name]


@pytest.mark.parametrize(
    "name", ["", " ", "-mail", "mail-", "ma il", "mäil", "mail\n", "a/b", "a:b"]
)
def test_other_names_are_refused(name: str) -> None:
    """The error shows the name, and nothing is added."""
    application = Application()

    with pytest.raises(InvalidPlugin, match=re.escape(f"Sample has the name {name!r}")):
        application.add(plugin(name=name, version="1"))

    assert application.order() == []


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "Hypercube"])
def test_reserved_names_are_refused(name: str) -> None:
    """Whatever their case."""
    with pytest.raises(ReservedName, match=f"Sample has the name '{name}', which no plugin may"):
        Application(plugin(name=name, version="1"))


def test_a_name_is_taken_once(noted) -> None:
    """The second plugin of a name is refused, at the line that adds it."""
    application = Application(noted("mail"))

    with pytest.raises(DuplicatePlugin, match=r"^there is a plugin mail already$"):
        application.add(noted("mail"))


def test_names_that_look_alike_are_one(noted) -> None:
    """As for distributions: case, and the sort of dash, make no difference."""
    with pytest.raises(DuplicatePlugin, match=r"a plugin Link_Check already as link-check$"):
        Application(noted("link-check"), noted("Link_Check"))


def test_add_takes_all_or_none(noted) -> None:
    """A plugin before the one that is refused is not added either."""
    application = Application(noted("mail"))

    with pytest.raises(DuplicatePlugin):
        application.add(noted("shop"), noted("mail"))

    assert [each.name for each in application.order()] == ["mail"]


@pytest.mark.parametrize("version", ["1", "1.2.0", "2.0rc1", "1!1.0", "1.0.post1", "1.0+local"])
def test_versions_are_those_of_pep_440(version: str) -> None:
    """Pre-releases, epochs and local versions included."""
    application = Application(plugin(name="mail", version=version))

    assert [str(each.version) for each in application.order()] == [version]


@pytest.mark.parametrize("version", ["", "one", "1.x", "v 1", ">=1"])
def test_other_versions_are_refused(version: str) -> None:
    """The error names the plugin and the version."""
    with pytest.raises(InvalidPlugin, match=re.escape(f"plugin mail has the version {version!r}")):
        Application(plugin(name="mail", version=version))


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"version": "1"}, "Sample declares no name; write name = 'mail'"),
        ({"name": "mail"}, "Sample declares no version; write version = '1.2.0'"),
        ({"name": 3, "version": "1"}, "the name of Sample is a str such as 'mail', not int"),
        ({"name": "mail", "version": 1.2}, "the version of Sample is a str such as '1.2.0', not"),
    ],
)
def test_name_and_version_must_be_declared(declared: dict[str, object], text: str) -> None:
    """The error says what to write."""
    with pytest.raises(InvalidPlugin, match=re.escape(text)):
        Application(plugin(**declared))


@pytest.mark.parametrize(
    ("requires", "text"),
    [
        ("mail", "the plugin shop requires 'mail'; write a list or tuple"),
        ({"mail"}, "write a list or tuple"),
        (None, "write a list or tuple"),
        ([None], "the plugin shop requires None; a requirement is a name and versions"),
        ([""], "the plugin shop requires ''; a requirement"),
        (["mail>"], "the plugin shop requires 'mail>'; a requirement"),
        (["mail>=x"], "requires 'mail>=x'; a requirement"),
        (["mail[smtp]"], "requires 'mail[smtp]'; a requirement is a name and versions"),
        (["mail; python_version>'3'"], "without extras, markers or URLs"),
        (["mail @ https://example.com/mail.zip"], "without extras, markers or URLs"),
    ],
)
def test_requirements_that_make_no_sense_are_refused(requires: object, text: str) -> None:
    """The error names the plugin and the requirement."""
    with pytest.raises(InvalidPlugin, match=re.escape(text)):
        Application(plugin(name="shop", version="1", requires=requires))


def test_the_application_is_told_of_its_own_mistakes_alike() -> None:
    """Its requirements are read as those of plugins are."""
    with pytest.raises(InvalidPlugin, match=r"^the application requires 'mail'; write a list"):
        Application(requires="mail")


@pytest.mark.parametrize(
    ("requirement", "version"),
    [
        ("mail", "0.0.1"),
        ("mail", "3.0rc1"),
        ("mail>=1.2,<2", "1.2"),
        ("mail>=1.2,<2", "1.9.9"),
        ("mail>=1.2", "1.3rc1"),
        ("mail~=1.4", "1.5"),
        ("mail==1.*", "1.7.2"),
        ("mail!=1.3", "1.3.1"),
        ("mail==1.0", "1.0+local"),
        ("Mail>=1", "1"),
        ("mail (>=1)", "1"),
    ],
)
def test_a_version_within_the_range_is_accepted(noted, requirement: str, version: str) -> None:
    """By PEP 440. A pre-release that is there was chosen, so it counts."""
    application = Application(noted("shop", requirement), noted("mail", version=version))

    assert [each.name for each in application.order()] == ["mail", "shop"]


@pytest.mark.parametrize(
    ("requirement", "version"),
    [
        ("mail>=1.2", "1.1.9"),
        ("mail>=1.2,<2", "2.0"),
        ("mail>=2", "2.0rc1"),
        ("mail<2", "2.0rc1"),
        ("mail~=1.4", "2.0"),
        ("mail==1.*", "2.1"),
        ("mail!=1.3", "1.3"),
    ],
)
def test_a_version_outside_the_range_is_not(noted, requirement: str, version: str) -> None:
    """Two requirements of one name have to hold both, as in one."""
    for requires in ([requirement], ["mail", requirement]):
        application = Application(noted("shop", *requires), noted("mail", version=version))

        with pytest.raises(UnmetRequirements) as raised:
            application.setup()

        (unmet,) = raised.value.unmet
        assert unmet.needed_by == "shop 1.0"
        assert unmet.found == version


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (None, "not NoneType"),
        ("mail", "not str"),
        (Plugin, "not Plugin; add an object of it"),
    ],
)
def test_what_is_no_plugin_is_refused(wrong: object, text: str) -> None:
    """A class is a common slip, so the error says what to add."""
    with pytest.raises(InvalidPlugin, match=f"a plugin is an object of a subclass .*{text}$"):
        Application(wrong)


@pytest.mark.parametrize("method", ["boot", "shutdown"])
def test_a_synchronous_plugin_has_no_coroutines(method: str) -> None:
    """Nobody would await them."""

    async def wait(self, services) -> None: ...

    text = f"^{method} of the plugin mail is a coroutine function; derive it from AsyncPlugin$"
    with pytest.raises(InvalidPlugin, match=text):
        Application(plugin(name="mail", version="1", **{method: wait}))


@pytest.mark.parametrize("base", [Plugin, AsyncPlugin])
def test_register_is_no_coroutine(base: type) -> None:
    """Not even that of an asynchronous plugin: an application can be set up at import."""

    class Mail(base):
        name = "mail"
        version = "1"

        async def register(self, registration) -> None: ...

    with pytest.raises(
        InvalidPlugin, match=r"^register of the plugin mail is a coroutine function"
    ):
        AsyncApplication(Mail())


def test_an_asynchronous_plugin_needs_an_asynchronous_application(async_noted) -> None:
    """The other one could not start it."""
    with pytest.raises(InvalidPlugin, match=r"^the plugin mail is asynchronous; add it to"):
        Application(async_noted("mail"))


def test_what_is_declared_counts_as_it_was_when_the_plugin_was_added(noted) -> None:
    """Later changes of the object change nothing."""
    mail = noted("mail")
    application = Application(mail)
    mail.requires = ["nothing"]
    mail.version = "9"

    assert [str(each) for each in application.order()] == ["mail 1.0"]
