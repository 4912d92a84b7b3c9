"""Settings that can change at run time change at once, and others are refused."""

from carrycast.core.model import Event, EventId
from carrycast.core.protocol import BeaconSettings, RecordingPort, StackPlan, StateMachine
from carrycast.core.protocol.effects import Note, SetTimer
from carrycast.core.protocol.machine import Settings
from carrycast.core.protocol.tuning import Tuner
from carrycast.core.wire import Layer
from carrycast.protocols.epidemic.protocol import Epidemic
from carrycast.protocols.epidemic.settings import EpidemicSettings
from carrycast.protocols.gossip.protocol import Gossip, GossipedEvent, GossipSettings
from carrycast.protocols.tree.protocol import Tree
from carrycast.protocols.tree.settings import TreeSettings
from carrycast.sim.testing import isolate_protocol
from carrycast.sim.testing.isolation import IsolatedHost


def tuner_of(machine: StateMachine, plan: StackPlan) -> Tuner:
    def told(layer: Layer, settings: Settings) -> bool:
        machine.on_retune(5.0, settings)
        return True

    return Tuner(plan, lambda layer: machine if layer is Layer.DISSEMINATION else None, told)


def evicted(port: RecordingPort) -> list[EventId | None]:
    return [effect.fact.event for effect in port.take() if isinstance(effect, Note) and effect.fact.kind == "evict"]


def test_a_smaller_buffer_lets_the_oldest_go_at_once_and_the_old_size_comes_back() -> None:
    protocol, port = isolate_protocol("epidemic", buffer=10)
    tuner = tuner_of(protocol, StackPlan(Epidemic, EpidemicSettings(buffer=10)))
    for number in range(5):
        protocol.on_publish(1.0, Event(EventId(0, number), {}))
    port.take()
    assert tuner.set("protocol.buffer", 2) == ""
    assert evicted(port) == [EventId(0, 0), EventId(0, 1), EventId(0, 2)]
    assert tuner.set("protocol.buffer", 2) == ""
    assert port.take() == []
    assert tuner.reset("protocol.buffer") == ""
    for number in range(5, 13):
        protocol.on_publish(6.0, Event(EventId(0, number), {}))
    assert evicted(port) == []


def test_gossip_takes_up_another_probability() -> None:
    protocol, port = isolate_protocol("gossip", p=0.0)
    tuner = tuner_of(protocol, StackPlan(Gossip, GossipSettings(p=0.0)))
    for number, sent in ((1, 0), (2, 1)):
        protocol.on_message(1.0, 7, GossipedEvent(Event(EventId(7, number), {}), 1, 60.0), "radio")
        assert len(port.take_messages()) == sent
        assert tuner.set("protocol.p", 1.0) == ""


def test_the_tree_takes_up_how_often_it_says_its_tables_again() -> None:
    host = IsolatedHost()
    host.roles = ("broker",)
    host.directory = lambda role: (0,)  # type: ignore[method-assign]
    protocol, port = isolate_protocol("tree", host=host, refresh_s=float("inf"))
    tuner = tuner_of(protocol, StackPlan(Tree, TreeSettings(refresh_s=float("inf"))))
    port.take()
    assert tuner.set("protocol.refresh_s", 2.0) == ""
    assert port.take() == [SetTimer("refresh", 2.0)]
    assert "cannot change links while it runs" in tuner.set("protocol.links", "given")


def test_what_may_not_change_is_refused_with_what_may() -> None:
    protocol, _ = isolate_protocol("gossip")
    tuner = tuner_of(protocol, StackPlan(Gossip, GossipSettings(), beacons=BeaconSettings()))
    assert tuner.set("protocol.q", 1).startswith("refused: gossip has no setting q; it has")
    refusal = "refused: gossip cannot change seen_s while it runs; what may change: p, sure_hops"
    assert tuner.set("protocol.seen_s", 1.0) == refusal
    assert tuner.set("protocol.p", 7) == "refused: protocol.p: Expected `float` <= 1.0"
    assert tuner.set("protocol.p", "much") == "refused: protocol.p: Expected `float`, got `str`"
    assert tuner.set("router.p", 7) == "refused: this node has no router to tune"
    assert tuner.set("battery", 7) == "refused: this node has no battery to tune"


def test_a_machine_that_fails_on_its_settings_keeps_the_old_ones() -> None:
    protocol, _ = isolate_protocol("gossip")
    tuner = Tuner(StackPlan(Gossip, GossipSettings(p=0.5)), lambda layer: protocol, lambda layer, settings: False)
    assert tuner.set("protocol.p", 1.0).startswith("gossip failed on protocol.p")
    assert tuner.reset("protocol.p") == "", "it is what it was"
