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

from hypercube_queue._checks import checked_name
from hypercube_queue._errors import InvalidArgument
from hypercube_queue._message import MAX_DURATION
from hypercube_queue._times import to_microseconds

_MAGIC = b"HQ"
_VERSION = 1
#: attempt base, visibility in microseconds (-1: none), four text lengths, then those of extra
#: and of payload.
_HEADER = struct.Struct(">Iq4HII")
_START = _MAGIC + bytes((_VERSION,))
_PREFIX_BYTES = len(_START) + _HEADER.size

#: The most earlier deliveries that an envelope tells of: more than any message has ever had.
MAX_ATTEMPT_BASE = 2**31 - 1

_LONGEST_LEASE_US = to_microseconds(MAX_DURATION)

#: The most that an envelope adds to `payload` and `extra`: four names of the greatest length.
MAX_ENVELOPE_OVERHEAD_BYTES = _PREFIX_BYTES + 4 * 255


class UnreadableEnvelope(ValueError):
    """The bytes are no envelope, or one of a version from the future. The text says which."""

    # Tracebacks and logs name it by where it is imported from.
    __module__ = "hypercube_queue.driver"


@dataclass(slots=True)
class Envelope:
    """The parts of a message that are stored."""

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
    """The envelope as bytes, every field exact (OWN-3).

    But for an attempt base over MAX_ATTEMPT_BASE, which stays there.
    """
    queue_name = envelope.queue_name.encode()
    message_id = envelope.id.encode()
    job_name = envelope.job_name.encode()
    namespace = envelope.namespace.encode()
    extra, payload = envelope.extra, envelope.payload
    header = _HEADER.pack(
        min(envelope.attempt_base, MAX_ATTEMPT_BASE),
        -1 if envelope.visibility_us is None else envelope.visibility_us,
        len(queue_name),
        len(message_id),
        len(job_name),
        len(namespace),
        len(extra),
        len(payload),
    )
    return b"".join((_START, header, queue_name, message_id, job_name, namespace, extra, payload))


def decode_envelope(blob: bytes) -> Envelope:
    """The inverse of `encode_envelope`; raises UnreadableEnvelope for anything else."""
    if not blob.startswith(_START) or len(blob) < _PREFIX_BYTES:
        raise UnreadableEnvelope(_fault_of_start(blob))
    attempt_base, visibility, queue_name, message_id, job_name, namespace, extra, payload = (
        _HEADER.unpack_from(blob, len(_START))
    )
    # From the lengths of the parts to where each of them ends.
    queue_name += _PREFIX_BYTES
    message_id += queue_name
    job_name += message_id
    namespace += job_name
    extra += namespace
    payload += extra
    if len(blob) < payload:
        raise UnreadableEnvelope(f"the envelope is cut off after {len(blob)} bytes")
    if len(blob) > payload:
        raise UnreadableEnvelope(f"{len(blob) - payload} bytes follow the end of the envelope")
    try:
        return Envelope(
            blob[_PREFIX_BYTES:queue_name].decode(),
            blob[queue_name:message_id].decode(),
            blob[extra:payload],
            blob[namespace:extra],
            blob[message_id:job_name].decode(),
            blob[job_name:namespace].decode(),
            None if visibility < 0 else visibility,
            attempt_base,
        )
    except UnicodeDecodeError as error:
        raise UnreadableEnvelope("a name in the envelope is not UTF-8") from error


def checked_envelope(blob: bytes) -> Envelope:
    """`decode_envelope` where others can write, too: what no push takes is unreadable.

    Such a name, lease or count would fail far from here, and each time the message is delivered.
    """
    envelope = decode_envelope(blob)
    try:
        checked_name("queue_name", envelope.queue_name, may_be_empty=False)
        checked_name("id", envelope.id, may_be_empty=False)
        checked_name("job_name", envelope.job_name, may_be_empty=True)
        checked_name("namespace", envelope.namespace, may_be_empty=True)
    except InvalidArgument as error:
        raise UnreadableEnvelope(f"the envelope has an invalid name: {error}") from error
    if envelope.visibility_us is not None and not 0 < envelope.visibility_us <= _LONGEST_LEASE_US:
        raise UnreadableEnvelope(
            f"the envelope has a lease of {envelope.visibility_us} microseconds; a message has "
            f"1 to {_LONGEST_LEASE_US}, or none of its own"
        )
    if envelope.attempt_base > MAX_ATTEMPT_BASE:
        raise UnreadableEnvelope(
            f"the envelope tells of {envelope.attempt_base} earlier deliveries; no message has "
            f"more than {MAX_ATTEMPT_BASE}"
        )
    return envelope


def _fault_of_start(blob: bytes) -> str:
    """The reason why bytes do not start like an envelope that can be read."""
    if blob[: len(_MAGIC)] != _MAGIC:
        return "the bytes do not start like an envelope"
    if len(blob) < _PREFIX_BYTES:
        return f"the envelope is cut off after {len(blob)} bytes"
    return (
        f"the envelope has version {blob[len(_MAGIC)]}, and this release reads version "
        f"{_VERSION}; upgrade the reader before the writers"
    )
