"""What plugins offer each other."""

from __future__ import annotations

import abc
import re
import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

import pytest

from hypercube_plugins import (
    Application,
    DuplicateService,
    InvalidService,
    LifecycleError,
    Plugin,
    PluginFailed,
    Registration,
    ServiceCycle,
    ServiceNotFound,
    ServiceNotReady,
    Services,
    Shared,
)

T = TypeVar("T")


class Mailer:
    """A service."""


class SMTPMailer(Mailer):
    """A better one."""


class Repository(Generic[T]):
    """A generic one."""


class Sender(Protocol):
    """A Protocol that can only be checked by a type checker."""

    def send(self) -> None: ...


@runtime_checkable
class Sized(Protocol):
    """One that can be checked at run time."""

    def __len__(self) -> int: ...


class Clock(abc.ABC):
    """An abstract class."""

    @abc.abstractmethod
    def now(self) -> int: ...


class Fixed(Clock):
    """A concrete one."""

    def now(self) -> int:
        return 0


class Sample(Plugin):
    """A plugin that registers what a test says."""

    version = "1"

    def __init__(
        self, name: str, register: Callable[[Registration], object], *requires: str
    ) -> None:
        self.name = name
        self.requires = requires
        self._register = register

    def register(self, registration: Registration) -> None:
        self._register(registration)


def application(*registers: Callable[[Registration], object]) -> Application:
    """Set up, with a plugin p0, p1, ... for each of these; each requires those before it."""
    made = Application(
        *(
            Sample(f"p{number}", register, *(f"p{other}" for other in range(number)))
            for number, register in enumerate(registers)
        )
    )
    made.setup()
    return made


def raised_in_register(register: Callable[[Registration], object]) -> BaseException:
    """What a plugin ran into."""
    with pytest.raises(PluginFailed) as raised:
        application(register)
    assert raised.value.__cause__ is not None
    return raised.value.__cause__


def test_a_service_is_found_by_its_type() -> None:
    """The very object, by every plugin and by the application."""
    mailer = Mailer()
    found = []

    class Shop(Plugin):
        name = "shop"
        version = "1"

        def boot(self, services: Services) -> None:
            found.append(services.get(Mailer))

    with Application(Shop(), Sample("mail", lambda r: r.provide(Mailer).value(mailer))) as app:
        found.append(app.services.get(Mailer))

    assert found == [mailer, mailer]


def test_services_of_one_type_are_told_apart_by_name() -> None:
    """The one without a name is one of them."""
    first, second, third = Mailer(), Mailer(), Mailer()

    def register(registration: Registration) -> None:
        registration.provide(Mailer).value(first)
        registration.provide(Mailer, name="bulk").value(second)
        registration.provide(Mailer, name="test").factory(lambda _: third)

    services = application(register).services

    assert services.get(Mailer) is first
    assert services.get(Mailer, name="bulk") is second
    assert services.get(Mailer, name="test") is third


def test_protocols_abstract_classes_and_generic_aliases_are_types_too() -> None:
    """What one asks for best; Repository[int] and Repository[str] are two services."""
    integers, strings = Repository[int](), Repository[str]()

    def register(registration: Registration) -> None:
        registration.provide(Sender).value(Mailer())
        registration.provide(Sized).value([1])
        registration.provide(Clock).value(Fixed())
        registration.provide(Repository[int]).value(integers)
        registration.provide(Repository[str]).value(strings)
        registration.provide(list[int]).value([2])

    services = application(register).services

    assert type(services.get(Sender)) is Mailer
    assert services.get(Sized) == [1]
    assert services.get(Clock).now() == 0
    assert services.get(Repository[int]) is integers
    assert services.get(Repository[str]) is strings
    assert services.get(list[int]) == [2]


@pytest.mark.parametrize(
    ("service", "value"),
    [
        (Mailer, None),
        (SMTPMailer, Mailer()),
        (Mailer, Mailer),
        (Sized, 3),
        (Clock, Mailer()),
        (Repository[int], Mailer()),
        (list[int], ()),
    ],
)
def test_a_value_of_another_type_is_refused(service: type, value: object) -> None:
    """When it is provided, and when a factory returns it."""
    error = raised_in_register(lambda r: r.provide(service).value(value))
    services = application(lambda r: r.provide(service).factory(lambda _: value)).services

    assert isinstance(error, InvalidService)
    assert str(error).startswith(f"the plugin p0 provides {type(value).__name__} as ")
    with pytest.raises(InvalidService, match=re.escape(str(error))):
        services.get(service)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda r: r.provide("mail").value(Mailer()), "looked up by a class, not by str"),
        (lambda r: r.provide(Mailer()).value(Mailer()), "looked up by a class, not by Mailer"),
        (
            lambda r: r.provide(Mailer, name=3).value(Mailer()),
            "the name of a service is a str, not int",
        ),
        (lambda r: r.provide(Mailer).factory(Mailer()), "a function that takes the services, not"),
        (lambda r: r.services.get("mail"), "looked up by a class, not by str"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call: Callable, text: str) -> None:
    """The error says what is expected."""
    error = raised_in_register(call)

    assert isinstance(error, InvalidService)
    assert text in str(error)


def test_a_service_is_provided_once() -> None:
    """The error names both providers; the first one stays."""
    mailer = Mailer()
    app = Application()
    app.provide(Mailer).value(mailer)
    with pytest.raises(DuplicateService, match="is provided already, by the application"):
        app.provide(Mailer).value(Mailer())
    app.add(
        Sample("a", lambda r: r.provide(Mailer, name="x").value(mailer)),
        Sample("b", lambda r: r.provide(Mailer, name="x").factory(lambda _: mailer)),
    )

    with pytest.raises(PluginFailed) as raised:
        app.setup()

    assert isinstance(raised.value.__cause__, DuplicateService)
    assert str(raised.value.__cause__).endswith(
        "Mailer named 'x' of the plugin b is provided already, by the plugin a; "
        "give one of them a name"
    )


def test_a_service_that_is_only_half_provided_is_told() -> None:
    """`provide` alone says nothing, and would be missed at some look-up much later."""
    error = raised_in_register(lambda r: r.provide(Mailer))
    app = Application()
    provision = app.provide(Mailer, name="x")

    text = r"does not say what \S+\.Mailer{} is; call value\(\) or factory\(\) of what provide"
    assert isinstance(error, InvalidService)
    assert re.match("the plugin p0 " + text.format(""), str(error))
    with pytest.raises(InvalidService, match="^the application " + text.format(" named 'x'")):
        app.setup()
    provision.value(Mailer())
    app.setup()
    with pytest.raises(DuplicateService):
        provision.value(Mailer())


def test_nothing_is_provided_after_register() -> None:
    """A plugin that keeps its registration is told so."""
    kept = []
    application(kept.append)

    for call in (
        lambda: kept[0].provide(Mailer).value(Mailer()),
        lambda: kept[0].provide(Mailer).factory(lambda _: Mailer()),
    ):
        with pytest.raises(LifecycleError, match=r"^the plugin p0 has registered; provide"):
            call()


# Factories


def test_a_factory_runs_once_and_only_when_needed() -> None:
    """At the first look-up; it may look up others."""
    made = []

    def register(registration: Registration) -> None:
        registration.provide(str).value("smtp://host")
        registration.provide(Mailer).factory(
            lambda services: made.append(services.get(str)) or Mailer()
        )

    app = application(register)
    app.boot()
    assert made == []

    assert app.services.get(Mailer) is app.services.get(Mailer)
    assert made == ["smtp://host"]


def test_a_factory_may_be_a_decorated_function() -> None:
    """Which stays as it is."""
    functions = []

    def register(registration: Registration) -> None:
        @registration.provide(Mailer).factory
        def make(services: Services) -> SMTPMailer:
            return SMTPMailer()

        functions.append(make)

    services = application(register).services

    assert type(services.get(Mailer)) is SMTPMailer
    assert type(functions[0](services)) is SMTPMailer


def test_a_factory_runs_once_for_any_number_of_threads() -> None:
    """All of them wait for the one that makes it, and get the same."""
    made = []
    barrier = threading.Barrier(8)

    def make(_: Services) -> Mailer:
        time.sleep(0.02)
        made.append(Mailer())
        return made[-1]

    services = application(lambda r: r.provide(Mailer).factory(make)).services
    found = []

    def look_up() -> None:
        barrier.wait()
        found.append(services.get(Mailer))

    threads = [threading.Thread(target=look_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1
    assert found == made * 8


def test_factories_that_need_each_others_services_do_not_wait_for_ever() -> None:
    """Two threads that begin at either end of a chain both come to an end."""
    entered = threading.Event()

    def make_mailer(services: Services) -> Mailer:
        entered.set()
        time.sleep(0.02)
        services.get(str)
        return Mailer()

    def register(registration: Registration) -> None:
        registration.provide(Mailer).factory(make_mailer)
        registration.provide(str).factory(lambda services: str(services.get(int)))
        registration.provide(int).factory(lambda _: 3)

    services = application(register).services
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(services.get(Mailer))),
        threading.Thread(target=lambda: entered.wait() and found.append(services.get(str))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert [thread.is_alive() for thread in threads] == [False, False]
    assert len(found) == 2


def test_a_factory_that_fails_is_tried_again() -> None:
    """The error is its own, with a note on who wanted to make what."""
    errors = [OSError("no"), OSError("still no")]

    def make(_: Services) -> Mailer:
        if errors:
            raise errors.pop(0)
        return Mailer()

    def register(registration: Registration) -> None:
        registration.provide(Mailer).factory(make)
        registration.provide(str).factory(lambda services: str(services.get(Mailer)))

    services = application(register).services

    with pytest.raises(OSError, match=r"^no\n") as raised:
        services.get(str)
    with pytest.raises(OSError, match=r"^still no\n"):
        services.get(Mailer)
    assert type(services.get(Mailer)) is Mailer
    notes = [re.sub(r"\S+\.(?=Mailer|str)", "", note) for note in raised.value.__notes__]
    assert notes == ["while the plugin p0 made Mailer", "while the plugin p0 made str"]


def test_services_that_need_each_other_are_refused_with_the_path() -> None:
    """And nothing hangs; those that are no part of it can still be made."""

    def register(registration: Registration) -> None:
        registration.provide(float).factory(lambda services: float(services.get(str)))
        registration.provide(str).factory(lambda services: str(services.get(int)))
        registration.provide(int).factory(lambda services: int(services.get(str)))
        registration.provide(Mailer).factory(lambda _: Mailer())

    services = application(register).services

    with pytest.raises(ServiceCycle) as raised:
        services.get(float)
    assert str(raised.value) == (
        "these services need each other: builtins.str -> builtins.int -> builtins.str"
    )
    assert type(services.get(Mailer)) is Mailer


def test_factories_run_again_after_a_shutdown() -> None:
    """What they made may be closed by then; what was provided as it is stays."""
    mailer = Mailer()

    def register(registration: Registration) -> None:
        registration.provide(Mailer).value(mailer)
        registration.provide(SMTPMailer).factory(lambda _: SMTPMailer())

    app = application(register)
    with app:
        first = app.services.get(SMTPMailer)
    with app:
        assert app.services.get(SMTPMailer) is not first
        assert app.services.get(Mailer) is mailer


# What is missing


def test_find_is_for_what_one_can_do_without() -> None:
    """None if nobody provides it."""
    services = application(lambda r: r.provide(Mailer).value(Mailer())).services

    assert services.find(Clock) is None
    assert services.find(Mailer, name="bulk") is None
    assert services.find(Mailer) is services.get(Mailer)


def test_what_is_missing_is_named() -> None:
    """By its full name."""
    services = application().services

    with pytest.raises(ServiceNotFound, match=rf"^nobody provides {re.escape(__name__)}\.Mailer$"):
        services.get(Mailer)


def test_who_could_provide_it_is_named_too() -> None:
    """The same type under other names, subclasses, superclasses, types of the same name."""
    other_mailer = type("Mailer", (), {})
    app = Application()
    app.provide(Mailer, name="bulk").value(Mailer())
    app.add(
        Sample("smtp", lambda r: r.provide(SMTPMailer).value(SMTPMailer())),
        Sample("other", lambda r: r.provide(other_mailer).value(other_mailer())),
        Sample("far", lambda r: r.provide(Clock).value(Fixed())),
    )
    app.setup()

    with pytest.raises(ServiceNotFound) as raised:
        app.services.get(Mailer)
    assert str(raised.value).replace(f"{__name__}.", "") == (
        "nobody provides Mailer; is it Mailer named 'bulk' of the application, which has a name, "
        "or SMTPMailer of the plugin smtp, a subclass, "
        "or Mailer of the plugin other, another type of this name?"
    )

    with pytest.raises(ServiceNotFound) as raised:
        app.services.get(Fixed)
    assert str(raised.value).replace(f"{__name__}.", "") == (
        "nobody provides Fixed; is it Clock of the plugin far, a superclass?"
    )


def test_plugins_that_were_kept_out_are_named(installed) -> None:
    """They may be who provides it. One that was then added by hand is not kept out."""
    installed("s", "1", {}, {"hypercube.plugins": ["mail = n:Mail", "stock = n:S", "tax = n:T"]})
    app = Application()
    for _ in range(2):
        app.discover(deny=["mail", "stock", "tax"])
    app.add(Sample("tax", lambda r: None))
    app.setup()

    with pytest.raises(ServiceNotFound, match=r"Mailer; not here are: mail, stock$"):
        app.services.get(Mailer)


# Before registration is done


@pytest.mark.parametrize("look_up", [Services.get, Services.find])
def test_nothing_is_looked_up_before_registration_is_done(look_up: Callable) -> None:
    """Not what another plugin provided already, not what is its own, and not what is missing."""
    texts = []

    def second(registration: Registration) -> None:
        registration.provide(Clock).value(Fixed())
        for service in (Mailer, Clock, Sender):
            with pytest.raises(ServiceNotReady) as raised:
                look_up(registration.services, service)
            texts.append(str(raised.value).replace(f"{__name__}.", ""))

    application(lambda r: r.provide(Mailer).value(Mailer()), second)

    early = "was looked up before registration was done; look it up in boot or later"
    assert texts == [
        f"Mailer {early}, or let the plugin p0 provide it early",
        f"Clock {early}, or let the plugin p1 provide it early",
        f"Sender {early}, or let the application provide it",
    ]


def test_nothing_of_plugins_is_looked_up_before_setup() -> None:
    """By the application."""
    app = Application(Sample("mail", lambda r: r.provide(Mailer, early=True).value(Mailer())))

    with pytest.raises(ServiceNotReady):
        app.services.get(Mailer)


@pytest.mark.parametrize("way", ["value", "factory"])
def test_what_is_declared_early_is_there_for_those_who_require_it(way: str) -> None:
    """Directly or not, and for the plugin itself."""
    mailer = Mailer()
    found = []

    def first(registration: Registration) -> None:
        provision = registration.provide(Mailer, early=True)
        getattr(provision, way)(mailer if way == "value" else lambda _: mailer)
        found.append(registration.services.get(Mailer))

    Application(
        Sample("c", lambda r: found.append(r.services.get(Mailer)), "b"),
        Sample("b", lambda r: None, "a"),
        Sample("a", first),
    ).setup()

    assert found == [mailer, mailer]


def test_who_wants_it_early_has_to_require_its_plugin() -> None:
    """Otherwise it would be there or not by the order in which plugins were added."""
    app = Application(
        Sample("mail", lambda r: r.provide(Mailer, early=True).value(Mailer())),
        Sample("shop", lambda r: r.services.get(Mailer)),
    )

    with pytest.raises(PluginFailed) as raised:
        app.setup()

    assert isinstance(raised.value.__cause__, ServiceNotReady)
    assert str(raised.value.__cause__).endswith(
        "Mailer was looked up before registration was done; "
        "the plugin shop has to require mail, so that it comes after it"
    )


def test_the_applications_own_services_are_there_at_once() -> None:
    """Before setup, and while plugins register, made or to be made."""
    app = Application(Sample("shop", lambda r: found.append(r.services.get(str))))
    app.provide(int).value(3)
    app.provide(str).factory(lambda services: str(services.get(int)))
    found = [app.services.get(int)]
    app.setup()

    assert found == [3, "3"]


def test_an_early_factory_cannot_look_up_what_is_not() -> None:
    """It follows the rules of the plugin that provides it."""

    def first(registration: Registration) -> None:
        registration.provide(int).value(3)
        registration.provide(str, early=True).factory(lambda services: str(services.get(int)))

    def second(registration: Registration) -> None:
        with pytest.raises(ServiceNotReady, match=r"^builtins\.int was looked up before"):
            registration.services.get(str)

    app = application(first, second)

    assert app.services.get(str) == "3"


def test_an_early_factory_may_look_up_what_is_early_for_its_plugin() -> None:
    """Whoever asks for what it makes."""
    found: list[str] = []
    application(
        lambda r: r.provide(int, early=True).value(3),
        lambda r: r.provide(str, early=True).factory(lambda services: str(services.get(int))),
        lambda r: found.append(r.services.get(str)),
    )

    assert found == ["3"]


# What is shared


class Counters:
    """Something of which each plugin has a part."""

    def under(self, name: str) -> list[str]:
        return [name]


def test_each_plugin_has_a_part_of_its_own() -> None:
    """By its name, of whatever has a method under(name); with a name, of the one so named."""
    counters = Counters()
    app = Application(
        Sample("a", lambda r: found.append(r.own(Counters))),
        Sample("b", lambda r: found.append(r.own(Counters, name="x"))),
    )
    app.provide(Counters).value(counters)
    app.provide(Counters, name="x").value(Counters())
    found: list[list[str]] = []
    app.setup()

    assert isinstance(counters, Shared)
    assert found == [["a"], ["b"]]


def test_a_part_may_be_wanted_only_where_there_is_one() -> None:
    """That is, where the application or a required plugin provides the whole early."""
    found: list[list[str] | None] = []

    def look(registration: Registration) -> None:
        found.append(registration.find_own(Counters))

    def provide(registration: Registration) -> None:
        registration.provide(Counters, early=True).value(Counters())
        registration.provide(Counters, name="late").value(Counters())
        found.append(registration.find_own(Counters))
        found.append(registration.find_own(Counters, name="late"))

    Application(Sample("a", look)).setup()
    Application(Sample("c", look, "b"), Sample("b", provide), Sample("d", look)).setup()
    app = Application(Sample("e", look))
    app.provide(Counters).value(Counters())
    app.setup()

    assert found == [None, ["b"], None, ["c"], None, ["e"]]


def test_what_has_no_parts_is_refused() -> None:
    """The error names its type."""
    app = Application(Sample("a", lambda r: r.own(Mailer)))
    app.provide(Mailer).value(Mailer())

    with pytest.raises(PluginFailed) as raised:
        app.setup()

    assert isinstance(raised.value.__cause__, InvalidService)
    assert str(raised.value.__cause__) == "Mailer has no parts, that is no method under(name)"
