"""What a handler says about retrying, by the error that it raises."""

from __future__ import annotations

from typing import TypeAlias

from hypercube_jobs._errors import PermanentError, Retry

Instruction: TypeAlias = PermanentError | Retry

#: How many causes and nested groups are followed.
_DEPTH = 20


def instruction_of(error: BaseException) -> Instruction | None:
    """The PermanentError or Retry in `error` that decides; None if there is none.

    The outermost one counts: the error itself, else its explicit cause (`raise ... from`), and so
    on. A group counts if all its parts do: as PermanentError if each is one, as Retry with the
    longest delay if each is one. What was merely being handled when `error` was raised says
    nothing.
    """
    try:
        return _instruction(error, _DEPTH)
    except BaseException:  # noqa: BLE001  # an error may do anything when it is looked at
        return None


def _instruction(error: BaseException | None, depth: int) -> Instruction | None:
    if error is None or not depth:
        return None
    if isinstance(error, PermanentError | Retry):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = _shared([_instruction(part, depth - 1) for part in error.exceptions])
        if found is not None:
            return found
    return _instruction(error.__cause__, depth - 1)


def _shared(parts: list[Instruction | None]) -> Instruction | None:
    retries = [part for part in parts if isinstance(part, Retry)]
    if len(retries) == len(parts):
        return max(retries, key=lambda retry: retry.delay)
    if all(isinstance(part, PermanentError) for part in parts):
        return parts[0]
    return None
