"""Beacons: the times at which a node sends them, its neighbors, and forged beacons."""

from random import Random

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Beacon, BeaconDiscovery, BeaconSettings, Fact, Interface, Link, RecordingPort
from carrycast.core.protocol.discovery import MAX_NEIGHBORS, DiscoveryUpcalls
from carrycast.core.protocol.effects import Broadcast, CancelTimer, Note, SetTimer
from carrycast.sim.testing import IsolatedHost


class Above(DiscoveryUpcalls):
    """Writes down what discovery says."""

    def __init__(self) -> None:
        self.found: list[Link] = []
        self.lost: list[Link] = []
        self.causes: list[Failure] = []

    def report_link_up(self, link: Link) -> None:
        self.found.append(link)

    def report_link_down(self, link: Link, cause: Failure) -> None:
        self.lost.append(link)
        self.causes.append(cause)

    def cost_s(self, neighbor: NodeId, interface: Interface) -> float:
        return 0.25


def discovery(interfaces: tuple[str, ...] = ("radio",)) -> tuple[BeaconDiscovery, RecordingPort, Above]:
    port, above = RecordingPort(), Above()
    settings = BeaconSettings(period_s=2.0, missed=3.0, jitter=0.1)
    return BeaconDiscovery(0, settings, port, IsolatedHost(), Random(1), above, interfaces), port, above


def test_the_first_beacon_comes_within_a_period_and_the_next_about_a_period_later() -> None:
    machine, port, _ = discovery(("radio", "wire"))
    machine.on_start(0.0)
    (first,) = port.take()
    assert isinstance(first, SetTimer)
    assert 0 <= first.delay_s <= 2.0
    machine.on_timer(first.delay_s, "beacon")
    *spoken, following = port.take()
    assert spoken == [Broadcast(Beacon(2.0), "radio"), Broadcast(Beacon(2.0), "wire")]
    assert isinstance(following, SetTimer)
    assert 1.8 <= following.delay_s <= 2.2


def test_a_speaker_is_a_neighbor_until_its_own_period_has_been_missed_often_enough() -> None:
    machine, port, above = discovery()
    machine.on_message(0.0, 5, Beacon(10.0), "radio")
    machine.on_message(1.0, 5, Beacon(10.0), "radio")
    assert above.found == [Link(5, "radio", 0.25)]
    assert SetTimer("silence", 30.0) in port.take()
    machine.on_timer(30.0, "silence")
    assert above.lost == []
    machine.on_timer(31.0, "silence")
    assert above.lost == [Link(5, "radio", 0.25)]


def test_a_period_is_believed_up_to_a_bound_and_up_to_the_own_one() -> None:
    machine, port, above = discovery()
    machine.on_message(0.0, 5, Beacon(3600.0), "radio")
    machine.on_message(0.0, 6, Beacon(60.0), "radio")
    notes = [effect for effect in port.take() if isinstance(effect, Note)]
    assert notes == [Note(Fact("drop", peer=5, reason="beacon_period_too_long", value=3600.0))]
    machine.on_message(1.0, 5, Beacon(3600.0), "radio")
    assert not any(isinstance(effect, Note) for effect in port.take()), "it is said once of a link"
    machine.on_timer(180.9, "silence")
    assert [link.neighbor for link in above.lost] == [6]
    machine.on_timer(181.0, "silence")
    assert [link.neighbor for link in above.lost] == [6, 5]
    slow, more = BeaconSettings(period_s=600.0), BeaconSettings(believed_s=3600.0)
    for settings, announced_s, believed_s in ((slow, 600.0, 600.0), (slow, 3600.0, 600.0), (more, 3600.0, 3600.0)):
        machine = BeaconDiscovery(0, settings, RecordingPort(), IsolatedHost(), Random(1), Above(), ("radio",))
        assert machine.limit_period_s(announced_s) == believed_s


def test_the_same_neighbor_over_two_interfaces_is_two_links() -> None:
    machine, _, above = discovery(("radio", "wire"))
    for interface in ("radio", "wire"):
        machine.on_message(0.0, 5, Beacon(2.0), interface)
    assert [link.interface for link in above.found] == ["radio", "wire"]


def test_a_flood_of_forged_beacons_does_not_fill_the_memory() -> None:
    machine, port, above = discovery()
    for sender in range(MAX_NEIGHBORS + 1):
        machine.on_message(0.0, sender, Beacon(2.0), "radio")
    assert len(above.found) == MAX_NEIGHBORS
    assert port.take()[-1] == Note(Fact("drop", peer=MAX_NEIGHBORS, reason="beacon_too_many_neighbors"))
    machine.on_message(1.0, 0, Beacon(2.0), "radio")
    assert port.take() == [], "those who are known are heard all the same"


def test_a_neighbor_that_cannot_be_reached_is_given_up_before_its_silence() -> None:
    machine, _, above = discovery()
    machine.on_message(0.0, 5, Beacon(2.0), "radio")
    machine.on_neighbor_failed(1.0, 5, "radio", Failure.UNREACHABLE)
    machine.on_neighbor_failed(1.0, 5, "radio", Failure.UNREACHABLE)
    assert above.lost == [Link(5, "radio", 0.25)]
    assert above.causes == [Failure.UNREACHABLE]


def test_a_neighbor_that_started_anew_is_lost_and_found_however_short_it_was_away() -> None:
    machine, _, above = discovery()
    machine.on_message(0.0, 5, Beacon(2.0, 0), "radio")
    machine.on_message(1.0, 5, Beacon(2.0, 1), "radio")
    machine.on_message(2.0, 5, Beacon(2.0, 1), "radio")
    assert above.found == [Link(5, "radio", 0.25)] * 2
    assert above.lost == [Link(5, "radio", 0.25)]
    assert above.causes == [Failure.RESTARTED]


def speaks_on(machine: BeaconDiscovery, port: RecordingPort, now: float, until: float) -> None:
    """Its beacons, each when it is due."""
    while (now := now + next(e.delay_s for e in port.take() if isinstance(e, SetTimer) and e.key == "beacon")) < until:
        machine.on_timer(now, "beacon")


def test_who_was_held_up_itself_does_not_take_that_for_the_silence_of_its_neighbors() -> None:
    machine, port, above = discovery()
    machine.on_start(0.0)
    machine.on_message(0.0, 5, Beacon(2.0), "radio")
    due_s = next(effect.delay_s for effect in port.take() if isinstance(effect, SetTimer))
    # Both were to come while the node stood still; neighbors on the same machine stood still too.
    machine.on_timer(due_s + 7.0, "silence")
    machine.on_timer(due_s + 7.0, "beacon")
    assert above.lost == []
    speaks_on(machine, port, due_s + 7.0, 13.0)
    machine.on_timer(12.99, "silence")
    assert above.lost == []
    machine.on_timer(13.0, "silence")
    assert above.lost == [Link(5, "radio", 0.25)], "as late as the node itself was, and no later"


def test_who_was_suspended_for_a_day_waits_no_longer_than_for_a_new_neighbor() -> None:
    machine, port, above = discovery()
    machine.on_start(0.0)
    machine.on_message(0.0, 5, Beacon(2.0), "radio")
    machine.on_message(86_400.0, 6, Beacon(2.0), "radio")
    machine.on_timer(86_400.0, "silence")
    assert above.lost == []
    port.take()
    machine.on_timer(86_400.0, "beacon")
    speaks_on(machine, port, 86_400.0, 86_406.0)
    machine.on_timer(86_406.0, "silence")
    assert {link.neighbor for link in above.lost} == {5, 6}


def test_a_stop_disarms_both_timers() -> None:
    machine, port, _ = discovery()
    machine.on_stop(0.0)
    assert port.take() == [CancelTimer("beacon"), CancelTimer("silence")]
