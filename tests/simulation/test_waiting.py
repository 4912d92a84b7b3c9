"""Time spent in the queues of the simulated media is taken off leases, and only that."""

import pytest

from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Interface, Protocol
from carrycast.core.wire import EventMessage, Message
from carrycast.sim.engine.simulation import Simulation, run
from carrycast.trace import Kind, Level
from tests.simulation.worlds import line, register


class Carried(EventMessage, frozen=True, tag=1):
    """An event over one hop."""


class Burst(Protocol):
    """Broadcasts a published event five times in a row, or sends it as often to node 1; remembers what remains."""

    name = "burst"
    messages = (Carried,)

    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.remaining_s: list[float] = []
        self.sent: list[Message] = []
        self.heard: list[Message] = []

    def on_publish(self, now: float, event: Event) -> None:
        for _ in range(5):
            message = Carried(event, 1, event.lease_s)
            self.sent.append(message)
            if event.attributes.get("to") == 1:
                self.port.send(1, message)
            else:
                self.port.broadcast(message)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Carried)
        self.heard.append(message)
        self.remaining_s.append(message.remaining_s)


def burst(
    monkeypatch: pytest.MonkeyPatch, radio: dict[str, object], lease_s: float = 10.0, to: int = 0, **tables: object
) -> Simulation:
    register(monkeypatch, Burst)
    publish = {"nodes": [0], "interval_s": 100.0, "from_s": 1.0, "lease_s": lease_s, "payload_bytes": 1000}
    tables = {"publish": [{**publish, "attributes": {"to": to}}], "protocol": {"name": "burst"}, **tables}
    simulation = Simulation(line(radio={"range_m": 120.0, **radio}, **tables), 1, Level.FULL)
    simulation.start()
    simulation.advance(9.0)
    return simulation


def machine(simulation: Simulation, node: NodeId) -> Burst:
    found = simulation.network.nodes[node].protocol
    assert isinstance(found, Burst)
    return found


def test_what_does_not_wait_is_the_object_that_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    done = burst(monkeypatch, {"model": "disk"})
    pairs = zip(machine(done, 0).sent, machine(done, 1).heard, strict=True)
    assert all(sent is heard for sent, heard in pairs)


@pytest.mark.parametrize("to", [0, 1])
@pytest.mark.parametrize("faults", [[], [{"kind": "duplication", "probability": 0.0001}]], ids=["plain", "disturbed"])
def test_the_queue_of_a_slow_radio_counts(
    to: int, faults: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = burst(monkeypatch, {"model": "disk", "rate_bps": 10_000.0}, to=to, faults=faults)
    received = [row for row in done.trace.table().to_pylist() if row["kind"] == Kind.RECEIVE]
    waited_s = [row["time_s"] - 1.0 for row in received if row["node"] == 1]
    assert waited_s[4] > 4.0
    assert machine(done, 1).remaining_s == pytest.approx([10.0 - each_s for each_s in waited_s])


@pytest.mark.parametrize("to", [0, 1])
def test_contention_backoff_and_repetitions_count(to: int, monkeypatch: pytest.MonkeyPatch) -> None:
    radio = {"model": "csma", "preset": "802.11b", "basic_rate_bps": 20_000.0, "data_rate_bps": 20_000.0}
    done = burst(monkeypatch, radio, to=to)
    received = [row for row in done.trace.table().to_pylist() if row["kind"] == Kind.RECEIVE]
    waited_s = [row["time_s"] - 1.0 for row in received if row["node"] == 1]
    assert waited_s[4] > 2.0
    assert machine(done, 1).remaining_s == pytest.approx([10.0 - each_s for each_s in waited_s])


def test_repetitions_of_a_lossy_radio_count(monkeypatch: pytest.MonkeyPatch) -> None:
    done = burst(monkeypatch, {"model": "disk", "rate_bps": 50_000.0, "loss": 0.6, "retries": 20}, to=1)
    rows = done.trace.table().to_pylist()
    waited_s = [row["time_s"] - 1.0 for row in rows if row["kind"] == Kind.RECEIVE]
    assert sum(row["kind"] == Kind.RETRY for row in rows) > 2
    assert machine(done, 1).remaining_s == pytest.approx([10.0 - each_s for each_s in waited_s])


def test_the_queue_of_a_wire_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wires = [{"between": [(0, 1)], "rate_bps": 10_000.0}]
    done = burst(monkeypatch, {"model": "disk"}, nodes=2, wires=wires)
    assert machine(done, 1).remaining_s[:5] == [10.0] * 5
    assert machine(done, 1).remaining_s[9] < 6.0


def test_what_waits_longer_than_its_lease_is_heard_and_dropped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    done = burst(monkeypatch, {"model": "disk", "rate_bps": 10_000.0}, lease_s=2.0)
    drops = [(row["node"], row["peer"]) for row in done.trace.table().to_pylist() if row["reason"] == "lease_over"]
    assert len(machine(done, 1).heard) + len(drops) == 5
    assert drops == [(1, 0)] * 3
    assert min(machine(done, 1).remaining_s) > 0


def test_bytes_on_the_wire_make_no_difference_to_what_waited() -> None:
    publish = [{"nodes": [0], "interval_s": 0.1, "payload_bytes": 1000, "lease_s": 1.0, "attributes": {"topic": 1}}]
    scenario = line(radio={"model": "disk", "range_m": 120.0, "rate_bps": 60e3}, publish=publish, subscribe=[{}])
    assert run(scenario, 1, recode=True).fingerprint == run(scenario, 1).fingerprint
