"""Whether a job is the same after its way through JSON.

What counts is what a handler can see: each field of dataclasses and models, those that `==`
leaves out too, entries of collections, private attributes of models. The class of a dataclass or
model counts as well, since the fields of a subclass would be lost. Three things do not count: the
name of a datetime's zone (its offset does), a subclass of a built-in type that is equal to what
arrives, and private attributes with a default_factory, which are made anew.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Nodes of pydantic's core schemas whose values are the same if `==` says so.
_PLAIN = frozenset(
    {
        "any",
        "bool",
        "bytes",
        "dataclass-args",
        "dataclass-field",
        "date",
        "default",
        "dict",
        "float",
        "frozenset",
        "int",
        "list",
        "literal",
        "model-field",
        "model-fields",
        "none",
        "nullable",
        "set",
        "str",
        "timedelta",
        "tuple",
        "typed-dict",
        "typed-dict-field",
        "union",
        "uuid",
    }
)
#: Types whose values are the same if `==` says so, whatever they arrive as.
_BUILT_IN = frozenset({bool, bytes, int, str, type(None)})
#: The `__eq__` of what is equal to itself only.
_NO_EQUALITY: object = object.__eq__
ABSENT = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """What does not arrive as it was sent. It shows no value."""

    #: Where it is, such as `lines[2].price`; empty for the job itself.
    path: str
    #: What happens to it.
    text: str


def is_plain(type_: type, schema: Mapping[str, Any]) -> bool:
    """Whether jobs of `type_` are the same if `==` says so of their attributes.

    `schema` is its core schema. True only for a flat class, or TypedDict, of built-in types.
    """
    if schema["type"] in {"dataclass", "model"}:
        if not hasattr(type_, "__dict__") or _has_slots(type_):
            return False
        if getattr(type_, "__private_attributes__", None) or allows_extra(schema):
            return False
        schema = schema["schema"]
    elif schema["type"] != "typed-dict":
        return False
    return all(node in _PLAIN for node in _node_types(schema))


def difference(
    sent: object, restored: object, *, dumps_equal: Callable[[], bool] = lambda: True
) -> Difference | None:
    """The first difference between a job and what it would arrive as; None if there is none.

    `dumps_equal` is asked if there are objects of which only their JSON can be compared.
    """
    comparison = _Comparison()
    found = comparison.compare(sent, restored, "")
    if found is None and comparison.opaque is not None and not dumps_equal():
        return changed(sent, sent, comparison.opaque)
    return found


class _Comparison:
    """Compares two values, and notes where only their JSON could tell them apart."""

    def __init__(self) -> None:
        #: Where the first object is that has no equality of its own.
        self.opaque: str | None = None

    def compare(self, sent: object, restored: object, path: str) -> Difference | None:
        if type(sent) in _BUILT_IN and sent == restored:
            return None  # most values are, and the questions below take time
        if isinstance(sent, BaseModel):
            return self._models(sent, restored, path)
        if dataclasses.is_dataclass(sent) and not isinstance(sent, type):
            return self._dataclasses(sent, restored, path)
        if isinstance(sent, dict) and isinstance(restored, dict):
            return self._dicts(sent, restored, path)
        for sequence in (list, tuple, deque):
            if isinstance(sent, sequence) and isinstance(restored, sequence):
                return self._sequences(list(sent), list(restored), path)
        return None if self._same(sent, restored, path) else changed(sent, restored, path)

    def _models(self, sent: BaseModel, restored: object, path: str) -> Difference | None:
        if not isinstance(restored, BaseModel) or _origin(sent) is not _origin(restored):
            return changed(sent, restored, path)
        return (
            self._attributes(sent, restored, type(sent).model_fields, path)
            or self._dicts(sent.model_extra or {}, restored.model_extra or {}, path, of_model=True)
            or self._attributes(sent, restored, _lasting_private_attributes(sent), path)
        )

    def _dataclasses(
        self, sent: DataclassInstance, restored: object, path: str
    ) -> Difference | None:
        if type(sent) is not type(restored):
            return changed(sent, restored, path)
        names = [field.name for field in dataclasses.fields(sent)]
        return self._attributes(sent, restored, names, path)

    def _attributes(
        self, sent: object, restored: object, names: Iterable[str], path: str
    ) -> Difference | None:
        for name in names:
            ours, theirs = getattr(sent, name, ABSENT), getattr(restored, name, ABSENT)
            found = self.compare(ours, theirs, below(path, name))
            if found is not None:
                return found
        return None

    def _dicts(
        self,
        sent: dict[Any, object],
        restored: dict[Any, object],
        path: str,
        *,
        of_model: bool = False,
    ) -> Difference | None:
        if sent.keys() != restored.keys():
            return Difference(path, "some of its keys are lost or arrive changed")
        for key, value in sent.items():
            # A key of data may be as secret as a value.
            where = below(path, key) if of_model else f"{path}[...]"
            found = self.compare(value, restored[key], where)
            if found is not None:
                return found
        return None

    def _sequences(
        self, sent: list[object], restored: list[object], path: str
    ) -> Difference | None:
        if len(sent) != len(restored):
            return Difference(path, "it arrives with another length")
        for index, (ours, theirs) in enumerate(zip(sent, restored, strict=True)):
            found = self.compare(ours, theirs, f"{path}[{index}]")
            if found is not None:
                return found
        return None

    def _same(self, sent: Any, restored: Any, path: str) -> bool:
        exact = _equality_of(sent)
        if exact is not None and isinstance(restored, exact[0]):
            return exact[1](sent, restored)
        try:
            if sent == restored:
                return True
            elements = sent if isinstance(sent, Set) else (sent,)
            opaque = any(type(each).__eq__ is _NO_EQUALITY for each in elements)
        except Exception:  # noqa: BLE001  # arrays, among others, are neither equal nor unequal
            opaque = True
        if opaque and type(sent) is type(restored):
            self.opaque = self.opaque or path
            return True
        return False


def _same_moment(sent: datetime, restored: datetime) -> bool:
    if sent.tzinfo is None and restored.tzinfo is None:
        return sent == restored and sent.fold == restored.fold
    if sent == restored:
        return True
    # Python calls two datetimes of different zones unequal where a zone's clock was set back.
    return (
        sent.replace(tzinfo=None) == restored.replace(tzinfo=None)
        and sent.utcoffset() == restored.utcoffset()
    )


def _same_time(sent: time, restored: time) -> bool:
    return _zoned(sent) == _zoned(restored) and sent.fold == restored.fold


def _same_decimal(sent: Decimal, restored: Decimal) -> bool:
    return sent.as_tuple() == restored.as_tuple()


def _same_float(sent: float, restored: float) -> bool:
    return sent == restored or (math.isnan(sent) and math.isnan(restored))


#: Where `==` says too much or too little: the sort of a value, and the equality it needs.
_EQUALITIES: tuple[tuple[type, Callable[[Any, Any], bool]], ...] = (
    (datetime, _same_moment),
    (time, _same_time),
    (Decimal, _same_decimal),
    (float, _same_float),
)


def _equality_of(value: object) -> tuple[type, Callable[[Any, Any], bool]] | None:
    return next((each for each in _EQUALITIES if isinstance(value, each[0])), None)


def _zoned(moment: time) -> tuple[time, object, bool]:
    return moment.replace(tzinfo=None), moment.utcoffset(), moment.tzinfo is None


def _lasting_private_attributes(model: BaseModel) -> list[str]:
    return [
        name
        for name, attribute in type(model).__private_attributes__.items()
        if attribute.default_factory is None
    ]


def _origin(model: BaseModel) -> object:
    return type(model).__pydantic_generic_metadata__["origin"] or type(model)


def changed(sent: object, restored: object, path: str) -> Difference:
    if isinstance(sent, float) and not math.isfinite(sent):
        return Difference(path, "JSON has neither NaN nor infinity")
    if restored is ABSENT:
        return Difference(path, "it is lost")
    if type(sent) is not type(restored) and sent is not ABSENT:
        ours, theirs = type(sent).__qualname__, type(restored).__qualname__
        return Difference(path, f"the {ours} arrives as {theirs}")
    return Difference(path, "it arrives with another value")


def below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


# Core schemas


def allows_extra(schema: Mapping[str, Any]) -> bool:
    return any(
        place.get(key) == "allow"
        for place in (schema, schema.get("config", {}), schema.get("schema", {}))
        if isinstance(place, Mapping)
        for key in ("extra_behavior", "extra_fields_behavior")
    )


def _has_slots(type_: type) -> bool:
    return any("__slots__" in vars(each) for each in type_.__mro__ if each is not BaseModel)


def _node_types(node: object) -> Iterator[str]:
    """The types of a schema and of all within it."""
    if isinstance(node, list | tuple):
        for each in node:
            yield from _node_types(each)
    elif isinstance(node, Mapping):
        if isinstance(node.get("type"), str):
            yield node["type"]
        for key, value in node.items():
            if key not in {"metadata", "default", "expected", "config", "cls", "serialization"}:
                yield from _node_types(value)
