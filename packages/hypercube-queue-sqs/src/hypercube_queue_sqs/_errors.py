"""From what boto3 raises and SQS answers to the errors of the contract: the one place for it."""

from __future__ import annotations

from typing import Any

from botocore import exceptions as boto  # type: ignore[import-untyped]  # it ships no types
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from hypercube_queue import (
    BackendError,
    CapacityExceeded,
    MessageTooLarge,
    NotFound,
    QueueError,
)

#: What boto3 raises.
CLIENT_ERRORS = (ClientError, BotoCoreError, ResponseParserError)

#: Refused for being too many, with nothing done. They are repeated.
_THROTTLED = frozenset(
    {
        "KmsThrottled",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
#: What SQS and its emulators call a receipt handle that is no good any more.
_STALE = frozenset({"InvalidParameterValue", "MessageNotInflight", "ReceiptHandleIsInvalid"})
#: How older and newer names of one code begin.
_NAMESPACES = ("AWS.SimpleQueueService.", "com.amazonaws.sqs#", "com.amazonaws.dynamodb.v20120810#")
_RENAMED = {"NonExistentQueue": "QueueDoesNotExist", "QueueAlreadyExists": "QueueNameExists"}

_REMEDIES = {
    "AccessDenied": "grant this action on the queue; the README lists what is needed",
    "AccessDeniedException": "grant this action; the README lists what is needed",
    "QueueDoesNotExist": "create it, or open the queue with ensure_queues=true",
    "QueueDeletedRecently": "SQS lets nobody use the name for 60 seconds",
    "ResourceNotFoundException": "create the table; the README says how",
}

#: What only a person can repair.
_PERMANENT = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "OptInRequired",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_PERMANENT_UNSENT = (
    boto.ConfigNotFound,
    boto.InvalidRegionError,
    boto.NoCredentialsError,
    boto.NoRegionError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
)

#: Raised before anything is sent.
_UNSENT = (
    boto.ConfigNotFound,
    boto.ConnectTimeoutError,
    boto.CredentialRetrievalError,
    boto.EndpointConnectionError,
    boto.InvalidRegionError,
    boto.NoAuthTokenError,
    boto.NoCredentialsError,
    boto.NoRegionError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.ProxyConnectionError,
    boto.SSLError,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
)


def code_of(error: BaseException) -> str:
    """The code of a refusal in its newer name, or nothing."""
    if not isinstance(error, ClientError):
        return ""
    return plain_code(str(error.response.get("Error", {}).get("Code", "")))


def plain_code(code: str) -> str:
    """A code in its newer name."""
    for start in _NAMESPACES:
        code = code.removeprefix(start)
    return _RENAMED.get(code, code)


def is_throttled(code: str) -> bool:
    """Whether nothing was done, and a little later it would be."""
    return code in _THROTTLED


def translation(error: BaseException, place: str, *, about: str = "") -> QueueError:
    """What the contract calls it; `about`: the queue or table that was asked for."""
    translated = _translation(error, place, about)
    translated.__cause__ = error
    return translated


def entry_error(failed: dict[str, Any], place: str, *, settles: bool) -> QueueError:
    """What one entry of a batch failed with."""
    code = plain_code(str(failed.get("Code", "")))
    text = str(failed.get("Message", ""))
    if settles and code in _STALE:
        return NotFound(f"{place}: {code}: the receipt handle is not good any more")
    if not settles and "must be shorter than" in text:
        return MessageTooLarge(
            f"{place}: {text} That is the queue's MaximumMessageSize; raise it, or store the "
            "content elsewhere and push a reference to it"
        )
    if code == "OverLimit":
        return CapacityExceeded(f"{place}: {code}: {text}")
    definite = bool(failed.get("SenderFault")) or is_throttled(code)
    return BackendError(f"{place}: an entry failed: {code}: {text}", outcome_unknown=not definite)


def _translation(error: BaseException, place: str, about: str) -> QueueError:
    if isinstance(error, ClientError):
        return _refusal(error, place, about)
    if isinstance(error, _UNSENT):
        permanent = isinstance(error, _PERMANENT_UNSENT)
        return BackendError(f"{place}: nothing could be sent: {error}", permanent=permanent)
    if isinstance(error, boto.ReadTimeoutError):
        return BackendError(f"{place}: no answer in time", outcome_unknown=True)
    # The text of others may show parameters.
    return BackendError(f"{place}: no answer: {type(error).__name__}", outcome_unknown=True)


def _refusal(error: Any, place: str, about: str) -> QueueError:
    code = code_of(error)
    text = str(error.response.get("Error", {}).get("Message", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    on = f" on {about}" if about else ""
    told = f"{place}: {error.operation_name}{on} was refused: {code}: {text}"
    if code == "OverLimit":
        return CapacityExceeded(f"{told}; settle what is in flight, and try again")
    if remedy := _REMEDIES.get(code):
        told = f"{told}; {remedy}"
    return BackendError(
        told,
        outcome_unknown=status >= 500 and not is_throttled(code),
        permanent=code in _PERMANENT,
    )
