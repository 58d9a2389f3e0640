"""The rules of the contract, each in one sentence."""

from __future__ import annotations

from types import MappingProxyType

#: Rule id to what it promises. Every rule has at least one test, and every test names its rules.
RULES = MappingProxyType(
    {
        # Ownership
        "OWN-1": "A push copies payload and extra, whatever bytes-like type they have.",
        "OWN-2": "Every delivery is a new message whose payload and extra are bytes of its own.",
        "OWN-3": "All fields come back exactly as they were pushed.",
        "OWN-4": "Only payload, extra and delay can be changed by a worker, through retry and "
        "dead_letter; an invalid change leaves the delivery owned.",
        # Push
        "PUSH-1": "An empty batch does nothing and contacts nobody.",
        "PUSH-2": "A missing id is assigned and written to the message before anything is sent.",
        "PUSH-3": "The caller's attempt and driver_data are ignored.",
        "PUSH-4": "An id that is retained in the same queue is AlreadyExists, and free after ack.",
        "PUSH-5": "A delayed message is never early, and late by no more than is promised.",
        "PUSH-6": "One batch may name several queues.",
        "PUSH-7": "An invalid item fails alone, before anything is stored, and nothing is clamped.",
        "PUSH-8": "A message of the greatest size still takes a failure record of 16 KiB.",
        # Pop
        "POP-1": "A pop returns what is visible up to its limit, or nothing once its wait is over.",
        "POP-2": "The attempt counts the hand-outs of a message, this one included.",
        "POP-3": "The delay is zero on every delivery.",
        "POP-4": "Each delivery has driver_data of its own.",
        "POP-5": "Two pops never hold one message at the same time.",
        "POP-6": "An unsettled message comes back, with the next attempt number.",
        "POP-7": "A waiting pop notices promptly whatever becomes visible, and idles cheaply.",
        "POP-8": "A stored message that cannot be read is set aside, never dropped or in the way.",
        "POP-9": "A pop is as fast with many messages in any state as with few.",
        "POP-10": "Ready messages come in the order of becoming ready, as far as is promised.",
        "POP-11": "A pop takes no more once its contents reach 16 MiB, where that is promised.",
        # Settlement
        "SET-1": "An ack removes the message for good.",
        "SET-2": "A stale settlement is NotFound and changes nothing; of two, exactly one wins.",
        "SET-3": "A retry stores payload, extra and delay, and keeps the attempt count.",
        "SET-4": "A dead-lettered message keeps contents, attempts and id, and nobody receives it.",
        "SET-5": "Of one delivery twice in a batch, the first settles and the second is NotFound.",
        "SET-6": "An update never loses the message, and leaves one copy of it.",
        "SET-7": "A settlement is in effect, and durable where promised, when the call returns.",
        # Batches and errors
        "ERR-1": "A failed item stops no valid one, and one BatchError lists all failures.",
        "ERR-2": "A failure's index is the position in the caller's arguments.",
        "ERR-3": "Errors have the types that callers act on.",
        "ERR-4": "A client's exception comes out as BackendError with the original as its cause.",
        "ERR-5": "Every call ends in time, and interrupting one loses nothing.",
        "ERR-6": "No error, log line or repr shows a payload or a password.",
        "ERR-7": "A BackendError that no repetition can heal is permanent.",
        # Lifecycle
        "LIFE-1": "One object serves any number of threads, is made without I/O, and closes well.",
        "LIFE-2": "After a restart of the backend the same object works again.",
        "LIFE-3": "open_queue finds the driver by the scheme of a URL.",
        "LIFE-4": "After a fork the child has connections of its own, or a clear error.",
        "LIFE-5": "A message does not expire.",
        "LIFE-6": "Nothing on the backend's side gives up on a message by itself.",
        # VisibilityExtender
        "EXT-1": "An extension counts from now and replaces the old deadline.",
        "EXT-2": "Extending a stale delivery is NotFound.",
        "EXT-3": "An extension that is not positive or too long is refused, and changes nothing.",
        # Redriver
        "RED-1": "A redrive makes up to so many dead messages ready, oldest death first.",
        "RED-2": "A redriven message keeps identity, routing, contents and visibility timeout.",
        "RED-3": "The next delivery of a redriven message has attempt 1.",
        "RED-4": "A redrive returns how many messages surely moved.",
        "RED-5": "A redrive of less than one is InvalidArgument.",
        "RED-6": "A redrive passes over what cannot be read, and does not count it.",
        # StatsProvider
        "STA-1": "Every state is counted; an expired lease and a due delay count as ready.",
        "STA-2": "An unknown queue has zeros.",
        "STA-3": "The names of queues that retain anything are listed, sorted, and no others.",
        # DeadLetterStore
        "DLS-1": "Looking at dead letters changes nothing.",
        "DLS-2": "Paging through dead letters neither skips nor repeats.",
        "DLS-3": "Dead letters are redriven and forgotten by id; unknown ids do not count.",
        # Releaser
        "REL-1": "A released delivery is as if it had not been popped.",
        # TransactionalPusher
        "TXN-1": "The messages exist if and only if the caller's transaction commits.",
        "TXN-2": "An id that exists already leaves the transaction usable.",
        "TXN-3": "Nothing is retried inside the caller's transaction.",
        "TXN-4": "Delays within a transaction count from the call.",
        # What the suite adds: that the driver is what it says it is
        "GUA-1": "The driver's guarantees are those declared, and its limits are where they say.",
        "CAP-1": "The driver has the capabilities declared, and no method of any other.",
        "MODEL-1": "In any order of calls, the driver does what a model of the contract does.",
    }
)
