"""One binary form of a message for brokers that store a single blob.

    magic   2 bytes   "HQ"
    version 1 byte    1
    header  struct    attempt base, visibility, the lengths of the texts, of extra and of payload
    texts             queue_name, id, job_name, namespace, in UTF-8
    extra, payload    as they are

Readers must understand a version one release before anything writes it (POP-8).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_MAGIC = b"HQ"
_VERSION = 1
#: attempt base, visibility in microseconds (-1: none), four text lengths, then those of extra
#: and of payload.
_HEADER = struct.Struct(">Iq4HII")
_PREFIX_BYTES = len(_MAGIC) + 1 + _HEADER.size

#: What an envelope adds to `payload` and `extra` at most: four names of the greatest length.
MAX_ENVELOPE_OVERHEAD_BYTES = _PREFIX_BYTES + 4 * 255


class UnreadableEnvelope(ValueError):
    """The bytes are no envelope, or one of a version from the future. The text says which."""


@dataclass(slots=True)
class Envelope:
    """What travels of a message."""

    queue_name: str
    id: str
    payload: bytes
    extra: bytes
    job_name: str
    namespace: str
    #: None means the driver's default.
    visibility_us: int | None
    #: Deliveries counted before this copy was published; the broker counts from zero again.
    attempt_base: int = 0


def encode_envelope(envelope: Envelope) -> bytes:
    """The envelope as bytes, every field exact (OWN-3)."""
    texts = [
        text.encode()
        for text in (envelope.queue_name, envelope.id, envelope.job_name, envelope.namespace)
    ]
    visibility = -1 if envelope.visibility_us is None else envelope.visibility_us
    parts = [*texts, envelope.extra, envelope.payload]
    header = _HEADER.pack(envelope.attempt_base, visibility, *map(len, parts))
    return b"".join((_MAGIC, bytes((_VERSION,)), header, *parts))


def decode_envelope(blob: bytes) -> Envelope:
    """The inverse of `encode_envelope`; raises UnreadableEnvelope for anything else."""
    if blob[: len(_MAGIC)] != _MAGIC:
        raise UnreadableEnvelope("the bytes do not start like an envelope")
    if len(blob) < _PREFIX_BYTES:
        raise UnreadableEnvelope(f"the envelope is cut off after {len(blob)} bytes")
    version = blob[len(_MAGIC)]
    if version != _VERSION:
        raise UnreadableEnvelope(
            f"the envelope has version {version}, and this release reads version {_VERSION}; "
            "upgrade the reader before the writers"
        )
    attempt_base, visibility, *lengths = _HEADER.unpack_from(blob, len(_MAGIC) + 1)
    whole = _PREFIX_BYTES + sum(lengths)
    if len(blob) < whole:
        raise UnreadableEnvelope(f"the envelope is cut off after {len(blob)} bytes")
    if len(blob) > whole:
        raise UnreadableEnvelope(f"{len(blob) - whole} bytes follow the end of the envelope")
    parts: list[bytes] = []
    start = _PREFIX_BYTES
    for length in lengths:
        parts.append(blob[start : start + length])
        start += length
    *texts, extra, payload = parts
    try:
        queue_name, message_id, job_name, namespace = (text.decode() for text in texts)
    except UnicodeDecodeError as error:
        raise UnreadableEnvelope("a name in the envelope is not UTF-8") from error
    return Envelope(
        queue_name=queue_name,
        id=message_id,
        payload=payload,
        extra=extra,
        job_name=job_name,
        namespace=namespace,
        visibility_us=None if visibility < 0 else visibility,
        attempt_base=attempt_base,
    )
