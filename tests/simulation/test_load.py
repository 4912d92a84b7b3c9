"""A node's processor as a resource: calls wait for each other, and how busy they keep it can be read."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from carrycast.core.functions import MAX_JOBS
from carrycast.core.model import Event, NodeId, Processor
from carrycast.core.protocol import Capability, Fact, Host, Port, Protocol, RunsProcessors, Settings, Token
from carrycast.errors import UserError
from carrycast.sim.testing import Net
from tests.simulation.worlds import line, register

FUNCTIONS = "def same(event):\n    return dict(event.attributes)\n"


class Calls(Protocol, RunsProcessors):
    """Calls whatever an event names, and writes down when the outcome came."""

    name = "calls"

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self.done: list[tuple[float, Token, str]] = []
        self._tokens = 0

    def on_publish(self, now: float, event: Event) -> None:
        if event.attributes.get("kind") == "store":
            self.port.note(Fact("store", event.id))
            return
        for id in str(event.attributes["call"]).split():
            self._tokens += 1
            self.port.process(id, b"s" * 100, [event], self._tokens)

    def on_processor(self, now: float, processor: Processor) -> None:
        pass

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        self.done.append((round(now, 6), token, error))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "Make":
    register(monkeypatch, Calls)
    (tmp_path / "f.py").write_text(FUNCTIONS)
    return Make(tmp_path)


class Make:
    def __init__(self, base: Path) -> None:
        self.base = base

    def __call__(self, **tables: object) -> Net:
        processors = [
            {"id": "slow", "function": "f.py:same", "nodes": "all", "cost_s": 2.0},
            {"id": "fast", "function": "f.py:same", "nodes": "all", "cost_s": 0.5},
            {"id": "free", "function": "f.py:same", "nodes": "all"},
        ]
        return Net.line(2, "calls", {"base": str(self.base), "processors": processors, **tables})


def done(net: Net, node: NodeId) -> list[tuple[float, Token, str]]:
    protocol = net.protocol(node)
    assert isinstance(protocol, Calls)
    return protocol.done


def test_calls_of_one_node_wait_for_each_other_and_not_for_those_of_another(make: Make) -> None:
    net = make()
    net.publish(0, {"call": "slow fast free"})
    net.publish(1, {"call": "fast"})
    net.run(1)
    net.publish(0, {"call": "fast"})
    net.run(10)
    assert done(net, 0) == [(2.0, 1, ""), (2.5, 2, ""), (2.5, 3, ""), (3.0, 4, "")]
    assert done(net, 1) == [(0.5, 1, "")]


def test_the_load_is_the_busy_share_of_the_last_seconds(make: Make) -> None:
    net = make(computer={"load_window_s": 4.0})
    host = net.protocol(0).host
    assert Capability.LOAD in host.offers
    net.publish(0, {"call": "slow free fast"})
    assert host.load(net.now) == 0.0
    net.run(1)
    assert host.load(net.now) == pytest.approx(0.25)
    net.run(3)
    assert host.load(net.now) == pytest.approx(2.5 / 4)
    net.run(2)
    assert host.load(net.now) == pytest.approx(0.5 / 4)
    assert net.protocol(1).host.load(net.now) == 0.0
    net.run(10)
    assert host.load(net.now) == 0.0


def test_a_node_that_has_more_to_do_than_it_can_is_fully_loaded(make: Make) -> None:
    net = make()
    for _ in range(12):
        net.publish(0, {"call": "slow"})
        net.run(1)
    assert net.protocol(0).host.load(net.now) == pytest.approx(1.0)
    assert [time_s for time_s, _, _ in done(net, 0)] == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_a_crash_takes_what_waits_and_the_load_with_it(make: Make) -> None:
    net = make()
    net.publish(0, {"call": "slow slow slow"})
    net.run(1)
    net.crash(0)
    net.restart(0)
    assert net.protocol(0).host.load(net.now) == pytest.approx(0.1)
    net.publish(0, {"call": "fast"})
    net.run(10)
    assert done(net, 0) == [(1.5, 1, "")], "nothing of before is waited for"


def test_too_many_calls_of_a_processor_are_refused_and_those_of_another_are_not(make: Make) -> None:
    net = make()
    net.publish(0, {"call": " ".join(["slow"] * (MAX_JOBS + 2) + ["fast"])})
    net.run(0)
    [(time_s, token, error)] = done(net, 0)
    assert (time_s, token) == (0.0, MAX_JOBS + 2)
    assert error == f"processor_busy: {MAX_JOBS} calls of slow wait already"
    net.run(1000)
    assert len(done(net, 0)) == MAX_JOBS + 3
    assert net.stop().failures["slow"].times == 1


def test_free_memory_is_what_events_and_waiting_calls_leave(make: Make) -> None:
    net = make(computer={"memory_bytes": 5000})
    host = net.protocol(0).host
    assert Capability.MEMORY in host.offers
    assert host.free_memory_bytes(net.now) == 5000
    stored = net.publish(0, {"kind": "store"}, b"x" * 1000)
    size_bytes = 5000 - host.free_memory_bytes(net.now)
    assert 1000 < size_bytes < 1100
    assert stored.payload
    net.publish(0, {"call": "slow"}, b"y" * 2000)
    assert 5000 - size_bytes - 2300 < host.free_memory_bytes(net.now) < 5000 - size_bytes - 2100
    net.run(3)
    assert host.free_memory_bytes(net.now) == 5000 - size_bytes
    net.publish(0, {"kind": "store"}, b"x" * 9000)
    assert host.free_memory_bytes(net.now) == 0
    net.crash(0)
    net.restart(0)
    assert net.protocol(0).host.free_memory_bytes(net.now) == 5000


def test_without_memory_in_the_scenario_nobody_knows_of_any(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make().protocol(0).host
    assert Capability.MEMORY not in host.offers
    with pytest.raises(TypeError, match="memory_bytes"):
        host.free_memory_bytes(0.0)
    monkeypatch.setattr(Calls, "needs", frozenset({Capability.MEMORY}))
    with pytest.raises(UserError, match="calls needs memory"):
        line(protocol={"name": "calls"})


@pytest.mark.parametrize("key", ["load_window_s", "memory_bytes"])
def test_a_computer_is_a_possible_one(key: Literal["load_window_s", "memory_bytes"]) -> None:
    with pytest.raises(UserError, match=rf"computer.{key}"):
        line(computer={key: -1})
