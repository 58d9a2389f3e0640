"""Jobs as JSON, checked by their types on both ends, and for arriving as they were sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, get_origin

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation

from hypercube_jobs._errors import InvalidPayload
from hypercube_jobs._mapping import mapping_difference
from hypercube_jobs._round_trip import difference, is_plain
from hypercube_queue import InvalidArgument
from hypercube_queue.checks import safe_repr

T = TypeVar("T")

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)

#: An error text names a few faults; a job with a thousand needs no more.
_SHOWN_FAULTS = 5


class Codec(Generic[T]):
    """Turns jobs of one type into JSON and back, strictly. Errors name the `kind`.

    Raises InvalidArgument for a type that is no dataclass, pydantic model or TypedDict, or
    that has fields which JSON cannot carry.
    """

    def __init__(self, type_: type[T], kind: str) -> None:
        self._kind = kind
        plain = get_origin(type_) or type_
        self._typed_dict = _is_typed_dict(plain)
        if not self._typed_dict and not (
            isinstance(plain, type)
            and (dataclasses.is_dataclass(plain) or issubclass(plain, BaseModel))
        ):
            raise InvalidArgument(
                f"a job is a dataclass, a pydantic model or a TypedDict, not {name_of(type_)}"
            )
        self._plain: type = plain
        self._class: type = dict if self._typed_dict else plain
        try:
            self._adapter: TypeAdapter[T] = TypeAdapter(type_)
            if not self._adapter.pydantic_complete:
                # Later would be at the first dispatch, far from the declaration.
                self._adapter.rebuild(raise_errors=True)
            # Without a step in between, since each job of a worker's passes here.
            self._validate: Callable[..., T] = self._adapter.validator.validate_json
            self._schema = self._adapter.core_schema
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidArgument(f"{name_of(type_)} cannot be a job: {reason}") from error
        #: Whether one comparison of attributes tells that a job is restored as it was.
        self._is_plain = is_plain(plain, self._schema)

    def encode(self, job: Any) -> bytes:
        """`job` as JSON that `decode` makes an equal job of. Raises InvalidPayload.

        A mapping may stand for a job of any type.
        """
        is_job = isinstance(job, self._class)
        if not is_job and not isinstance(job, Mapping):
            got = (
                f"the class {name_of(job)} itself" if isinstance(job, type) else name_of(type(job))
            )
            raise self._invalid(f"expected {name_of(self._plain)} or a mapping, got {got}")
        if self._typed_dict and not is_job:
            job, is_job = dict(job), True
        adapter = self._adapter if is_job else _ANYTHING
        payload = self._dump(adapter, job)
        # What a worker would refuse fails here, where somebody can mend it.
        restored = self.decode(payload)
        if not (self._is_plain and self._is_equal(job, restored)):
            self._check(job, restored, payload)
        return payload

    def decode(self, payload: bytes) -> T:
        """The job in `payload`. Raises InvalidPayload."""
        try:
            return self._validate(payload, strict=True)
        except ValidationError as error:
            # Its own text quotes the values.
            raise self._invalid(_faults(error)) from None

    def _dump(self, adapter: TypeAdapter[Any], job: Any) -> bytes:
        try:
            # Without warnings: decode finds what is wrong, and says so without the values.
            return adapter.dump_json(job, by_alias=True, round_trip=True, warnings=False)
        except ValueError as error:  # pydantic's serialization error is one
            raise self._invalid(str(error)) from error

    def _is_equal(self, job: Any, restored: Any) -> bool:
        if self._typed_dict:
            return bool(job == restored)
        # Of a dataclass or model `==` may leave fields out.
        return type(job) is type(restored) and job.__dict__ == restored.__dict__

    def _check(self, job: Any, restored: Any, payload: bytes) -> None:
        if self._typed_dict or not isinstance(job, self._class):
            found = mapping_difference(job, restored, self._schema)
        else:
            found = difference(
                job, restored, dumps_equal=lambda: self._dump(self._adapter, restored) == payload
            )
        if found is not None:
            raise self._invalid(f"{found.path or 'payload'}: {found.text}")

    def _invalid(self, text: str) -> InvalidPayload:
        return InvalidPayload(f"job of kind {safe_repr(self._kind)}: {text}")


def _is_typed_dict(plain: object) -> bool:
    # typing has a function for this, which does not know the ones of typing_extensions.
    return isinstance(plain, type) and issubclass(plain, dict) and "__total__" in vars(plain)


def name_of(type_: object) -> str:
    """A type as an error text names it. What is no type may hold values, and shows none."""
    if isinstance(type_, type):
        return type_.__qualname__
    if type_ is None or get_origin(type_) is not None:
        return str(type_)
    return f"an object of {type(type_).__qualname__}"


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        f"{'.'.join(str(part) for part in fault['loc']) or 'payload'}: {fault['msg']}"
        for fault in faults[:_SHOWN_FAULTS]
    ]
    if len(faults) > _SHOWN_FAULTS:
        shown.append(f"and {len(faults) - _SHOWN_FAULTS} more")
    return "; ".join(shown)
