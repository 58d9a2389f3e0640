"""It brings its scripts, and knows where a queue's keys are in a cluster."""

from importlib.resources import files

from hypercube_queue_lua import GUARANTEES, slot_of

scripts = [each.name for each in (files("hypercube_queue_lua") / "lua").iterdir()]
assert "push.lua" in scripts
assert 0 <= slot_of(b"{work}") < 16384
assert GUARANTEES.leases
