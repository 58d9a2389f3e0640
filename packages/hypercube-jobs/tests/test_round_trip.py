"""A job arrives as it was sent, or its dispatch is refused."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
import typing_extensions
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    SecretBytes,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    computed_field,
    model_validator,
)

from hypercube_jobs import InvalidPayload, Jobs
from hypercube_queue_memory import MemoryQueue

BERLIN = ZoneInfo("Europe/Berlin")


class Colour(Enum):
    """An enumeration."""

    RED = "red"


class Size(IntEnum):
    """One whose members are numbers."""

    BIG = 3


class Level(StrEnum):
    """One whose members are texts."""

    HIGH = "high"


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    y: int


class Name(str):
    """A text of an application's own."""

    __slots__ = ()


class Ratio(float):
    """A number of an application's own."""


class Opaque:
    """Has no equality, and arrives as it was."""

    def __init__(self, text: str) -> None:
        self.text = text


class Grumpy(Opaque):
    """Its equality raises, as that of arrays does."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = object.__hash__


def _carried(type_: type[Opaque], written: Any) -> Any:
    return Annotated[
        type_,
        PlainValidator(lambda value: value if isinstance(value, type_) else type_(value)),
        PlainSerializer(written),
    ]


class Cat(BaseModel):
    """One of two."""

    sort: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    """The other one."""

    sort: Literal["dog"] = "dog"


class Kitten(Cat):
    """A subclass, with a field of its own."""

    weeks: int = 3


@dataclass
class Line:
    """Part of a job."""

    count: int = 1


@dataclass
class GiftLine(Line):
    """A subclass, with a field of its own."""

    wish: str = "secret"


class Options(typing_extensions.TypedDict):
    """Part of a job."""

    host: str


class Excluding(BaseModel):
    """A model that leaves a field out."""

    token: str = Field(default="", exclude=True)


class Apart(BaseModel):
    """A model that writes a field under a name that it does not read."""

    count: int = Field(default=1, validation_alias="in", serialization_alias="out")


class Chosen(BaseModel):
    """A model that reads several names."""

    count: int = Field(validation_alias=AliasChoices("count", "amount"))


class Open(BaseModel):
    """A model with fields that it does not name."""

    model_config = ConfigDict(extra="allow")


class Private(BaseModel):
    """A model with attributes that are no fields."""

    _note: str = PrivateAttr(default="")
    _cache: dict[str, int] = PrivateAttr(default_factory=dict)


class Computing(BaseModel):
    """A model with a field that is computed."""

    side: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        """Of the square."""
        return self.side**2


class Bytes(BaseModel):
    """A model that writes bytes in base64."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


class Numbers(BaseModel):
    """A model that writes what is no number in its own way."""

    model_config = ConfigDict(ser_json_inf_nan="constants")
    number: float


@dataclass
class Counting:
    """Computes a field when it is made."""

    text: str
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.text)


@dataclass
class Growing:
    """Grows whenever it is made."""

    count: int

    def __post_init__(self) -> None:
        self.count += 1


@dataclass
class Ignoring:
    """Its equality knows one field only."""

    id: int
    note: str | bytes | None = field(default=None, compare=False)


@dataclass(eq=False)
class Unequal:
    """Has no equality."""

    count: int


@dataclass(slots=True)
class Slotted:
    """Has no dictionary."""

    count: int
    note: str | None = None


Cents = Annotated[Decimal, PlainSerializer(lambda value: f"{value:.2f}")]
Stripped = Annotated[str, StringConstraints(strip_whitespace=True)]
Rounded = Annotated[float, AfterValidator(lambda value: round(value, 1))]


def holder(type_: Any) -> type[Any]:
    """A dataclass with one field of this type."""
    return dataclasses.make_dataclass("Job", [("value", type_)])


def arrives(job: Any, type_: type[Any] | None = None) -> Any:
    """The job as a handler would get it. Raises InvalidPayload at the dispatch."""
    jobs = Jobs(MemoryQueue())
    jobs.declare("kind", type_ or type(job))
    jobs.dispatch_kind("kind", job)
    (message,) = jobs.queue.pop("default")
    return jobs.kind_of(message).codec.decode(message.payload)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (int, 2**80),
        (int, Size.BIG),
        (bool, True),
        (str, "\N{SNOWMAN} \x00\n"),
        (str, Name("a")),
        (str, Level.HIGH),
        (float, 0.1),
        (float, 5),
        (float, Ratio(0.5)),
        (float | None, None),
        (float | None, -0.0),
        (bytes, b"abc"),
        (Decimal, Decimal("1.100")),
        (Decimal, Decimal("1E+5")),
        (Cents, Decimal("1.10")),
        (UUID, UUID(int=7)),
        (date, date(2026, 7, 1)),
        (timedelta, timedelta(microseconds=-1)),
        (datetime, datetime(2026, 7, 1, 12, 30, 0, 1)),
        (datetime, datetime(2026, 7, 1, tzinfo=BERLIN)),
        (datetime, datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)),
        (datetime, datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)),
        (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))),
        (time, time(12, 30)),
        (time, time(12, 30, tzinfo=UTC)),
        (Colour, Colour.RED),
        (Size, Size.BIG),
        (Literal["a", 1], 1),
        (list[int], [1, 2]),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], Point(1, 2)),
        (Point, Point(1, 2)),
        (set[int], {1, 2}),
        (frozenset[Colour], frozenset({Colour.RED})),
        (dict[str, int], {"a": 1}),
        (dict[int, str], {1: "a"}),
        (dict[date, int], {date(2026, 7, 1): 1}),
        (int | str, "1"),
        (int | float, 1.0),
        (Any, {"a": [1, None, "b", 1.5, True]}),
        (Options, {"host": "a"}),
        (Line, Line(3)),
        (list[Line], [Line(1), Line(2)]),
        (list[Cat], [Cat(lives=1)]),
        (Annotated[Cat | Dog, Field(discriminator="sort")], Dog()),
        (list[Cat | Dog], [Dog(), Cat()]),
        (_carried(Opaque, lambda value: value.text), Opaque("a")),
        (_carried(Grumpy, lambda value: value.text), Grumpy("a")),
        (Open, Open(more="a")),
        (Private, Private()),
        (Bytes, Bytes(data=b"\xff")),
        (Ignoring, Ignoring(1, "a")),
        (Unequal, Unequal(1)),
        (Slotted, Slotted(1)),
        (Excluding, Excluding()),
        (Apart, Apart()),
        (Stripped, "a"),
        (Rounded, 0.5),
    ],
)
def test_what_arrives_as_it_was_sent_is_dispatched(type_: Any, value: Any) -> None:
    """Whatever its type is."""
    job = holder(type_)(value)

    restored = arrives(job).value

    if isinstance(value, Opaque):
        assert restored.text == value.text
    elif isinstance(value, Unequal):
        assert restored.count == value.count
    elif isinstance(value, datetime) and value.tzinfo is not None:
        assert restored.isoformat() == value.isoformat()
    else:
        assert restored == value


@pytest.mark.parametrize(
    "job",
    [
        Line(3),
        Slotted(3),
        Counting("abc"),
        Computing(side=3),
        Private(),
        Open(more=[1]),
        Numbers(number=math.inf),
        Cat(),
        Bytes(data=b"\xff"),
        Ignoring(1, "a"),
    ],
)
def test_jobs_of_any_class_arrive(job: Any) -> None:
    """Computed fields, fields without init, fields that no class names."""
    assert arrives(job) == job


def test_a_private_attribute_with_a_factory_is_made_anew() -> None:
    """A cache is no part of a job."""
    job = Private()
    job._cache["a"] = 1

    assert arrives(job)._cache == {}


def test_a_number_that_is_not_equal_to_itself_arrives_where_its_model_can_write_it() -> None:
    """What JSON lacks may be written otherwise."""
    assert math.isnan(arrives(Numbers(number=math.nan)).number)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (SecretStr, SecretStr("hunter2"), "value: it arrives with another value"),
        (SecretBytes, SecretBytes(b"hunter2"), "value: it arrives with another value"),
        (float | None, math.nan, "value: JSON has neither NaN nor infinity"),
        (float | None, -math.inf, "value: JSON has neither NaN nor infinity"),
        (list[float | None], [1.0, math.inf], "value[1]: JSON has neither NaN nor infinity"),
        (Any, {"a": math.nan}, "value[...]: JSON has neither NaN nor infinity"),
        (float, 2**53 + 1, "value: the int arrives as float"),
        (float, Decimal("0.1"), "value: the Decimal arrives as float"),
        (str, UUID(int=7), "value: the UUID arrives as str"),
        (str, b"a", "value: the bytes arrives as str"),
        (str, Colour.RED, "value: the Colour arrives as str"),
        (Any, Colour.RED, "value: the Colour arrives as str"),
        (Any, (1, 2), "value: the tuple arrives as list"),
        (Any, {1: 2}, "value: some of its keys are lost or arrive changed"),
        (Any, date(2026, 7, 1), "value: the date arrives as str"),
        (list[int], (1, 2), "value: the tuple arrives as list"),
        (dict[str, int], {None: 1}, "value: some of its keys are lost or arrive changed"),
        (Cents, Decimal("1.005"), "value: it arrives with another value"),
        (datetime, datetime(2026, 10, 25, 2, 30, fold=1), "value: it arrives with another value"),
        (time, time(2, 30, fold=1), "value: it arrives with another value"),
        (time, time(2, 30, tzinfo=BERLIN), "value: it arrives with another value"),
        (Options, {"host": "a", "more": 1}, "value: some of its keys are lost or arrive changed"),
        (Line, GiftLine(), "value: the GiftLine arrives as Line"),
        (list[Line], [Line(), GiftLine()], "value[1]: the GiftLine arrives as Line"),
        (dict[str, Cat], {"hunter2": Kitten()}, "value[...]: the Kitten arrives as Cat"),
        (
            Annotated[Cat | Dog, Field(discriminator="sort")],
            Kitten(),
            "value: the Kitten arrives as Cat",
        ),
        (
            _carried(Opaque, lambda value: str(len(value.text))),
            Opaque("hunter2"),
            "value: it arrives with another value",
        ),
        (Excluding, Excluding(token="hunter2"), "value.token: it arrives with another value"),
        (Apart, Apart(**{"in": 5}), "value.count: it arrives with another value"),
        (Growing, Growing(1), "value.count: it arrives with another value"),
        (Ignoring, Ignoring(1, b"hunter2"), "value.note: the bytes arrives as str"),
        (Stripped, " hunter2 ", "value: it arrives with another value"),
        (Rounded, 0.123, "value: it arrives with another value"),
    ],
)
def test_what_would_arrive_changed_is_refused(type_: Any, value: Any, text: str) -> None:
    """The error names kind and field, and shows no value; nothing is stored."""
    jobs = Jobs(MemoryQueue())
    jobs.declare("kind", holder(type_))

    with pytest.raises(InvalidPayload, match=re.escape(text)) as raised:
        jobs.dispatch_kind("kind", jobs.kind("kind").type(value))

    assert str(raised.value).startswith("job of kind 'kind': value")
    assert "hunter2" not in str(raised.value)
    assert jobs.queue.queues() == []


@pytest.mark.parametrize(
    ("type_", "job", "text"),
    [
        (Line, GiftLine(), "payload: the GiftLine arrives as Line"),
        (Cat, Kitten(), "payload: the Kitten arrives as Cat"),
        (Options, {"host": "a", "more": 1}, "payload: some of its keys are lost"),
        (Growing, Growing(1), "count: it arrives with another value"),
        (Slotted, Slotted(1, b"a"), "note: the bytes arrives as str"),
        (Ignoring, Ignoring(1, b"a"), "note: the bytes arrives as str"),
        (Chosen, Chosen.model_construct(count=1.5), "count: Input should be a valid integer"),
    ],
)
def test_jobs_of_any_class_are_refused(type_: type[Any], job: Any, text: str) -> None:
    """A job itself is compared as its fields are."""
    with pytest.raises(InvalidPayload, match=re.escape(text)):
        arrives(job, type_)


def test_a_private_attribute_that_was_set_is_refused() -> None:
    """It would be lost."""
    job = Private()
    job._note = "hunter2"

    with pytest.raises(InvalidPayload, match="_note: it arrives with another value"):
        arrives(job)


# Mappings


class Order(BaseModel):
    """Read from mappings."""

    id: int = Field(alias="orderId", default=0)
    at: datetime | None = None
    tags: set[str] = set()
    days: dict[date, int] = {}
    lines: list[Line] = []
    price: Decimal = Decimal(0)
    ratio: float | None = None
    name: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    token: SecretStr | None = None
    data: Any = None


class Migrating(BaseModel):
    """Understands keys of former versions."""

    count: int

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, data: dict[str, int]) -> dict[str, int]:
        return {"count": data.get("amount", data.get("count", 0))}


@pytest.mark.parametrize(
    ("type_", "mapping"),
    [
        (Order, {"orderId": 5, "at": "2026-07-01T12:30:00Z", "tags": ["a"]}),
        (Order, {"at": datetime(2026, 7, 1, tzinfo=BERLIN), "tags": {"a"}}),
        (Order, {"days": {"2026-07-01": 1}, "lines": [{"count": 2}, Line(3)]}),
        (Order, {"days": {date(2026, 7, 1): 1}, "price": "1.10", "lines": ({"count": 2},)}),
        (Order, {"price": 1, "ratio": 5, "name": " a ", "token": "hunter2", "data": {"a": [1]}}),
        (Chosen, {"amount": 1}),
        (Migrating, {"amount": 1}),
        (Open, {"more": 1}),
    ],
)
def test_a_mapping_is_what_its_type_makes_of_it(type_: type[Any], mapping: Any) -> None:
    """Texts may stand for what JSON lacks."""
    restored = arrives(mapping, type_)

    assert restored == TypeAdapter(type_).validate_python(mapping)


@pytest.mark.parametrize(
    ("type_", "mapping", "text"),
    [
        (Line, {"count": 1, "cuont": 2}, "payload: Line has no field for one of its keys"),
        (Order, {"id": 5}, "payload: Order has no field for one of its keys"),
        (Order, {"lines": [{"hunter2": 2}]}, "lines[0]: Line has no field for one of its keys"),
        (Order, {"lines": [GiftLine()]}, "lines[0]: the GiftLine arrives as Line"),
        (Order, {"ratio": math.nan}, "ratio: JSON has neither NaN nor infinity"),
        (Order, {"ratio": 2**53 + 1}, "ratio: the int arrives as float"),
        (Order, {"token": SecretStr("hunter2")}, "token: it arrives with another value"),
        (Order, {"data": {"a": math.inf}}, "data[...]: JSON has neither NaN nor infinity"),
        (Order, {"data": Colour.RED}, "data: the Colour arrives as str"),
        (Options, {"host": "a", "more": 1}, "payload: some of its keys are lost"),
    ],
)
def test_a_part_of_a_mapping_that_would_be_lost_is_refused(
    type_: type[Any], mapping: Any, text: str
) -> None:
    """A key that no field has would vanish without a word."""
    with pytest.raises(InvalidPayload, match=re.escape(text)) as raised:
        arrives(mapping, type_)

    assert "hunter2" not in str(raised.value)


# Anything

_ZONES = st.sampled_from([None, UTC, BERLIN, ZoneInfo("Asia/Kathmandu")])
_SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (bool, st.booleans()),
    (str, st.text()),
    (float, st.floats()),
    (float | None, st.floats() | st.none()),
    (bytes, st.binary()),
    (Decimal, st.decimals()),
    (datetime, st.datetimes(timezones=_ZONES)),
    (date, st.dates() | st.datetimes()),
    (time, st.times(timezones=_ZONES)),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (SecretStr, st.text().map(SecretStr)),
    (Line, st.builds(Line, st.integers()) | st.builds(GiftLine, st.integers(), st.text())),
    (Cat | Dog, st.sampled_from([Cat(), Dog(), Kitten()])),
    (int | str, st.integers() | st.text()),
    (Any, st.integers() | st.text() | st.floats() | st.dates() | st.binary() | st.none()),
]


def _collections(
    inner: st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    return inner.flatmap(
        lambda typed: st.sampled_from(
            [
                (list[typed[0]], st.lists(typed[1], max_size=3)),
                (tuple[typed[0], ...], st.lists(typed[1], max_size=3).map(tuple)),
                (dict[str, typed[0]], st.dictionaries(st.text(), typed[1], max_size=3)),
                (typed[0] | None, typed[1] | st.none()),
            ]
        )
    )


@st.composite
def _typed_values(draw: st.DrawFn) -> tuple[Any, Any]:
    types = st.recursive(st.sampled_from(_SCALARS), _collections, max_leaves=3)
    type_, values = draw(types)
    return type_, draw(values)


def _seen(value: Any) -> Any:
    """All that a handler can see of a value, in a form that `==` compares."""
    if dataclasses.is_dataclass(value) or isinstance(value, BaseModel):
        return type(value), _seen(vars(value))
    if isinstance(value, dict):
        return {key: _seen(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [_seen(each) for each in value]
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, datetime | time):
        zoned = value.tzinfo is not None
        return value.isoformat(), zoned, value.fold if not zoned else 0
    if isinstance(value, float | Decimal):
        return repr(value)
    return value


@given(_typed_values())
@example((dict[str, SecretStr], {"a": SecretStr("b")}))
@example((list[float | None], [math.nan]))
@example((datetime, datetime(1890, 1, 1, tzinfo=BERLIN)))
def test_any_job_arrives_as_it_was_sent_or_is_refused(typed: tuple[Any, Any]) -> None:
    """There is no third."""
    type_, value = typed
    try:
        restored = arrives(holder(type_)(value)).value
    except InvalidPayload:
        return
    assert _seen(restored) == _seen(value)
