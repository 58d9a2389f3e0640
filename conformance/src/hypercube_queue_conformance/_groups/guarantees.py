"""That the driver is what its harness declares, no less and no more."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest

from hypercube_queue import CAPABILITIES, Guarantees, InvalidArgument, Message, Queue, capability
from hypercube_queue_conformance._marks import rule
from hypercube_queue_conformance._trial import QUEUE, Trial, failed

#: Where two functions that bound a delay are compared.
_DELAYS = tuple(timedelta(seconds=seconds) for seconds in (0, 0.001, 1, 60, 3600, 86_400 * 3650))


class DeclaredGuarantees:
    @rule("GUA-1")
    @pytest.mark.parametrize("field", [field.name for field in fields(Guarantees)])
    def test_gua_1_each_guarantee_is_the_declared_one(self, trial: Trial, field: str) -> None:
        """The declaration says what the driver says; it is known at once and does not change."""
        declared = getattr(trial.guarantees, field)
        before = getattr(trial.queue.guarantees, field)
        trial.visible()
        after = getattr(trial.queue.guarantees, field)
        for actual in (before, after):
            if field == "delay_lateness":
                assert [actual(d) for d in _DELAYS] == [declared(d) for d in _DELAYS]
            else:
                assert actual == declared

    @rule("GUA-1", "PUSH-7")
    def test_gua_1_the_longest_delay_is_where_it_is_declared(self, trial: Trial) -> None:
        """A microsecond more is refused, and what is declared is taken."""
        longest = trial.guarantees.max_delay
        over = Message(QUEUE, b"over", delay=longest + timedelta(microseconds=1))
        assert failed(trial.queue.push, over) == [(0, InvalidArgument)]
        trial.queue.push(Message(QUEUE, b"longest", delay=longest))
        assert trial.visible() == []

    @rule("GUA-1", "PUSH-7")
    def test_gua_1_the_longest_lease_is_where_it_is_declared(self, trial: Trial) -> None:
        """A microsecond more is refused, and what is declared is taken."""
        longest = trial.guarantees.max_visibility
        over = Message(QUEUE, b"over", visibility_timeout=longest + timedelta(microseconds=1))
        assert failed(trial.queue.push, over) == [(0, InvalidArgument)]
        trial.queue.push(Message(QUEUE, b"longest", visibility_timeout=longest))
        assert trial.receive_one().payload == b"longest"

    @rule("GUA-1", "PUSH-7")
    def test_gua_1_a_queue_name_outside_the_declared_pattern_is_refused(self, trial: Trial) -> None:
        """InvalidArgument in push and pop; without a pattern every name is taken."""
        name = "a name/with:everything {} é"
        if trial.guarantees.accepts_queue_name(name):
            trial.queue.push(Message(name, b"0"))
            assert trial.visible(name) == [b"0"]
            return
        assert failed(trial.queue.push, Message(name)) == [(0, InvalidArgument)]
        with pytest.raises(InvalidArgument):
            trial.queue.pop(name)

    @rule("CAP-1")
    @pytest.mark.parametrize("protocol", CAPABILITIES, ids=lambda protocol: protocol.__name__)
    def test_cap_1_a_capability_is_there_if_it_is_declared(
        self, trial: Trial, protocol: type
    ) -> None:
        """Declared: the driver has all its members. Not declared: it has none of its methods."""
        members = [name for name in vars(protocol) if not name.startswith("_")]
        present = [name for name in members if hasattr(trial.queue, name)]
        if protocol in trial.harness.capabilities:
            assert present == members
            assert capability(trial.queue, protocol) is trial.queue
        else:
            assert [name for name in present if callable(getattr(protocol, name))] == []
            assert capability(trial.queue, protocol) is None

    @rule("CAP-1")
    def test_cap_1_the_driver_object_is_a_queue(self, trial: Trial) -> None:
        """It has every method of the contract's Queue."""
        assert isinstance(trial.queue, Queue)
