"""Reading frames, whatever a publisher put into the properties of its message."""

from __future__ import annotations

import struct
from typing import Any

from pika import BasicProperties, frame, spec  # type: ignore[import-untyped]  # no types
from pika.adapters.asyncio_connection import (  # type: ignore[import-untyped]  # no types
    AsyncioConnection,
)

_START = struct.Struct(">BHL")
_CONTENT = struct.Struct(">HHQ")


class UndecodableProperties(BasicProperties):  # type: ignore[misc]  # pika ships no types
    """Stands for properties that pika cannot decode, for the `reason`."""

    def __init__(self, reason: Exception) -> None:
        super().__init__()
        self.reason = f"{type(reason).__name__}: {reason}"[:200]


class TolerantConnection(AsyncioConnection):  # type: ignore[misc]  # pika ships no types
    """A connection that survives properties which pika cannot decode.

    A timestamp beyond the year 9999, a float that is not a number or tables within tables make
    pika give up the connection, and the broker would deliver the same message over the next one.
    """

    def _read_frame(self) -> tuple[int, Any]:
        try:
            read: tuple[int, Any] = super()._read_frame()
        except Exception as error:
            header = _without_properties(self._frame_buffer, error)
            if header is None:
                raise
            return header
        return read


def _without_properties(data: bytes, error: Exception) -> tuple[int, Any] | None:
    """The content header at the start of `data`; None if there is something else."""
    kind, channel, size = _START.unpack_from(data)
    end = _START.size + size + 1
    if kind != spec.FRAME_HEADER or size < _CONTENT.size or data[end - 1 : end] != b"\xce":
        return None
    _, _, body_size = _CONTENT.unpack_from(data, _START.size)
    return end, frame.Header(channel, body_size, UndecodableProperties(error))
