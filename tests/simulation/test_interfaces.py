"""Nodes with several interfaces, and nodes without: what goes out over which, and what is told of the rest."""

import pytest

from carrycast.core.model import Event, EventId, Failure
from carrycast.core.protocol import Interface, Token
from carrycast.sim.engine.simulation import Simulation, run
from carrycast.trace import Kind, Level
from tests.live.talker import Talker, Word
from tests.simulation.worlds import line, register

WIRES: list[dict[str, object]] = [{"interface": "ethernet", "between": [(0, 1)]}]


class Speaker(Talker):
    """Says what a published event says, as it says."""

    name = "speaker"

    def on_publish(self, now: float, event: Event) -> None:
        via = event.attributes.get("via")
        interface = None if via is None else str(via)
        if "to" in event.attributes:
            self.port.send(int(event.attributes["to"]), Word("word"), interface, int(event.attributes["token"]))
        else:
            self.port.broadcast(Word("word"), interface)


class Story:
    """Four nodes in a row, the first two of them wired; node `node` says one thing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wires: list[dict[str, object]], **tables: object) -> None:
        register(monkeypatch, Speaker)
        tables = {"nodes": 4, "wires": wires, "protocol": {"name": "speaker"}, **tables}
        self.simulation = Simulation(line(**tables), 1, Level.FULL)
        self.simulation.start()

    def say(self, node: int, **attributes: int | str) -> None:
        event = Event(EventId(node, self.simulation.next_sequence(node)), dict(attributes), b"", 0.0, 60.0, None)
        self.simulation.network.nodes[node].publish(event)
        self.told_within = len(self.outcomes(node))
        self.simulation.advance(self.simulation.kernel.now_s + 0.5)

    def rows(self, kind: Kind) -> list[dict[str, object]]:
        found = self.simulation.trace.table().to_pylist()
        return [row for row in found if row["kind"] == kind and row["layer"] == "dissemination"]

    def sent(self) -> list[tuple[object, object]]:
        return [(row["node"], row["interface"]) for row in self.rows(Kind.SEND)]

    def outcomes(self, node: int) -> list[tuple[Token, Failure | None]]:
        return Talker.all[node].outcomes


def heard(node: int) -> list[Interface]:
    return Talker.all[node].vias


def test_ten_floods_of_four_nodes_of_which_two_are_wired_are_sixty_transmissions() -> None:
    publish = [{"nodes": [0], "interval_s": 0.5, "from_s": 1.0, "to_s": 5.5}]
    done = run(line(nodes=4, wires=WIRES, publish=publish, subscribe=[{}]), 1)
    assert (done.metrics["published"], done.metrics["delivery_ratio"]) == (10, 1.0)
    assert done.metrics["transmissions"] == 10 * (4 + 2)


def test_a_broadcast_goes_out_on_the_interfaces_that_a_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch, WIRES)
    story.say(0)
    story.say(2)
    assert story.sent() == [(0, "ethernet"), (0, "radio"), (2, "radio")]
    assert sorted(heard(1)) == ["ethernet", "radio", "radio"]


def test_a_message_costs_energy_only_on_the_interfaces_that_a_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = {"idle_w": 0.0, "receive_j_per_byte": 0.0, "send_j_per_byte": 1.0, "battery_j": 1000.0}
    story = Story(monkeypatch, WIRES, energy=energy)
    batteries = story.simulation.recorder.batteries
    assert batteries is not None
    story.say(0)
    story.say(2)
    spent_j = [1000.0 * (1 - batteries.level(node, 0.0)) for node in (0, 2)]
    assert spent_j[0] == pytest.approx(2 * spent_j[1])


@pytest.mark.parametrize("named", ["ethernet", "infrared"])
@pytest.mark.parametrize("wires", [WIRES, []], ids=["wired", "radio alone"])
def test_an_interface_that_a_node_lacks_is_a_named_drop_and_a_failure(
    named: str, wires: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(monkeypatch, wires)
    story.say(2, via=named)
    story.say(2, via=named, to=1, token=7)
    assert story.told_within == 0, "an outcome is never told from inside the handler that is still sending"
    assert story.outcomes(2) == [(7, "unreachable")]
    assert story.sent() == []
    drops = [(row["node"], row["peer"], row["reason"]) for row in story.rows(Kind.DROP)]
    assert drops == [(2, None, "out_of_reach"), (2, 1, "out_of_reach")]


def test_the_interface_that_is_named_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch, WIRES)
    story.say(0, via="radio", to=1, token=1)
    story.say(0, to=1, token=2)
    story.say(0, via="radio")
    assert story.sent() == [(0, "radio"), (0, "ethernet"), (0, "radio")]
    assert story.outcomes(0) == [(1, None), (2, None)]


def test_beacons_go_out_on_the_interfaces_that_a_node_has() -> None:
    done = run(line(nodes=4, wires=WIRES, discovery={"mode": "beacon", "jitter": 0.0}), 1, Level.FULL)
    sent = [row for row in done.trace.table().to_pylist() if row["kind"] == Kind.SEND]
    speakers = {
        interface: {row["node"] for row in sent if row["interface"] == interface} for interface in ("radio", "ethernet")
    }
    assert speakers == {"radio": {0, 1, 2, 3}, "ethernet": {0, 1}}
