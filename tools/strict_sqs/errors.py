"""Errors by their names in the service's model, and as the older protocol calls them."""

from __future__ import annotations

_OLD = "AWS.SimpleQueueService."
#: What the header `x-amzn-query-error` says, where it is another name.
_QUERY_CODES = {
    "BatchEntryIdsNotDistinct": f"{_OLD}BatchEntryIdsNotDistinct",
    "BatchRequestTooLong": f"{_OLD}BatchRequestTooLong",
    "EmptyBatchRequest": f"{_OLD}EmptyBatchRequest",
    "InvalidBatchEntryId": f"{_OLD}InvalidBatchEntryId",
    "MessageNotInflight": f"{_OLD}MessageNotInflight",
    "QueueDeletedRecently": f"{_OLD}QueueDeletedRecently",
    "QueueDoesNotExist": f"{_OLD}NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "TooManyEntriesInBatchRequest": f"{_OLD}TooManyEntriesInBatchRequest",
    "UnsupportedOperation": f"{_OLD}UnsupportedOperation",
}


class Refused(Exception):
    """The service refuses a request, or an entry of a batch."""

    def __init__(
        self, code: str, text: str, *, status: int = 400, sender_fault: bool = True
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.status = status
        self.sender_fault = sender_fault

    @property
    def query_code(self) -> str:
        """The older name, which is the one that boto3 shows."""
        return _QUERY_CODES.get(self.code, self.code)


def invalid(name: str, value: object, reason: str) -> Refused:
    """What most bad parameters are answered with."""
    return Refused(
        "InvalidParameterValue", f"Value {value} for parameter {name} is invalid. Reason: {reason}."
    )
