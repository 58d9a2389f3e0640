"""Whether a job has all of the mapping that it was made from."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Set
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter

from hypercube_jobs._round_trip import (
    ABSENT,
    Difference,
    allows_extra,
    below,
    changed,
    difference,
)

#: Where these stand around a class, keys of a mapping may be meant for them.
_FUNCTIONS = frozenset({"function-before", "function-wrap", "function-plain"})
#: The nodes that list the fields of a class.
_FIELDS = frozenset({"dataclass-args", "model-fields"})


def mapping_difference(
    sent: Mapping[Any, object], restored: object, schema: Mapping[str, Any]
) -> Difference | None:
    """The first part of a mapping that the job made from it lacks; None if there is none.

    `schema` is the core schema of the job. What JSON has, texts, numbers, lists and so on, means
    what the job's type makes of it; all else must arrive as it was.
    """
    return _mapped(sent, restored, "", schema)


def _mapped(
    sent: object, restored: object, path: str, schema: Mapping[str, Any] | None = None
) -> Difference | None:
    if isinstance(sent, Mapping):
        if isinstance(restored, Mapping):
            return _mapped_entries(sent, restored, path)
        return _mapped_fields(sent, restored, path, schema)
    if isinstance(sent, list | tuple) and isinstance(restored, list | tuple):
        for index, (ours, theirs) in enumerate(zip(sent, restored, strict=False)):
            found = _mapped(ours, theirs, f"{path}[{index}]")
            if found is not None:
                return found
        return None
    if isinstance(sent, list | tuple | Set):
        arrives = isinstance(restored, list | tuple | Set) and all(
            _is_element(each, restored) for each in sent
        )
    else:
        arrives = _is_json(sent, restored) or difference(sent, restored) is None
    return None if arrives else changed(sent, restored, path)


def _is_json(sent: object, restored: object) -> bool:
    """Whether JSON has `sent` itself, and `restored` is what a type made of it."""
    if isinstance(sent, int | float) and isinstance(restored, int | float):
        return sent == restored
    if isinstance(sent, float):
        return math.isfinite(sent)
    return sent is None or isinstance(sent, str | int)


def _is_element(sent: object, restored: Collection[Any]) -> bool:
    # Nothing tells which element of a set was made of which text.
    if sent is None or isinstance(sent, str | int | Mapping):
        return True
    try:
        return sent in restored
    except TypeError:
        return False


def _mapped_entries(
    sent: Mapping[Any, object], restored: Mapping[Any, object], path: str
) -> Difference | None:
    if len(sent) > len(restored):
        return Difference(path, "some of its keys are lost")
    for key, value in sent.items():
        # A key that its type has made another one of, such as a date, is not looked for.
        if key in restored:
            found = _mapped(value, restored[key], f"{path}[...]" if path else str(key))
            if found is not None:
                return found
        elif not isinstance(key, str | int):
            return Difference(path, "some of its keys arrive changed")
    return None


def _mapped_fields(
    sent: Mapping[Any, object], restored: object, path: str, schema: Mapping[str, Any] | None
) -> Difference | None:
    if not isinstance(restored, BaseModel) and not dataclasses.is_dataclass(restored):
        return None
    names = _names_by_key(schema or _schema_of(cast("Hashable", type(restored))))
    if names is None:
        return None
    for key, value in sent.items():
        if key not in names:
            return Difference(
                path, f"{type(restored).__qualname__} has no field for one of its keys"
            )
        found = _mapped(value, getattr(restored, names[key], ABSENT), below(path, names[key]))
        if found is not None:
            return found
    return None


@functools.lru_cache(maxsize=256)
def _schema_of(type_: Hashable) -> Mapping[str, Any]:
    return TypeAdapter(cast("type[Any]", type_)).core_schema


def _names_by_key(schema: Mapping[str, Any]) -> dict[str, str] | None:
    """The fields of a class by the keys that stand for them; None where any key may."""
    definitions: dict[str, Mapping[str, Any]] = {}
    config: Mapping[str, Any] = {}
    while schema.get("type") not in _FIELDS:
        if schema.get("type") in _FUNCTIONS or allows_extra(schema):
            return None
        if schema.get("type") == "definitions":
            definitions = {each["ref"]: each for each in schema["definitions"]}
        config = {**config, **schema.get("config", {})}
        if schema.get("type") == "definition-ref":
            schema = definitions.get(schema["schema_ref"], {})
        else:
            schema = schema.get("schema", {})
        if not schema:
            return None
    fields = schema["fields"]
    if not isinstance(fields, Mapping):
        fields = {field["name"]: field for field in fields}
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    by_alias = config.get("validate_by_alias", True)
    names: dict[str, str] = {}
    for name, field in fields.items():
        alias = field.get("validation_alias")
        if alias is not None and by_alias:
            names.update(dict.fromkeys(_first_keys(alias), name))
        if alias is None or by_name or not by_alias:
            names[name] = name
    return names


def _first_keys(alias: Any) -> Iterator[str]:
    if isinstance(alias, str):
        yield alias
    elif alias and isinstance(alias[0], str):
        yield alias[0]
    else:
        yield from (path[0] for path in alias)
