"""Links that are slow for a while: later, in order, dearer, and known to be so."""

from typing import ClassVar

import pytest

from carrycast.core.model import EventId
from carrycast.core.protocol import Link, Protocol
from carrycast.errors import UserError
from carrycast.sim.testing import Net
from tests.simulation.worlds import line, register

SLOW = {"kind": "link_slow", "between": [1, 0], "delay_s": 0.5, "at_s": 10.0, "for_s": 10.0}


class Costs(Protocol):
    """Writes down what it is told of the costs of its links."""

    name = "costs"
    told: ClassVar[list[tuple[int, float, int, float]]] = []

    def on_link_up(self, now: float, link: Link) -> None:
        self.told.append((self.node, now, link.neighbor, link.cost_s))

    def on_link_changed(self, now: float, link: Link) -> None:
        self.told.append((self.node, now, link.neighbor, link.cost_s))


@pytest.mark.parametrize("discovery", [{"mode": "oracle"}, {"mode": "beacon", "jitter": 0.0}])
def test_both_ends_are_told_when_a_link_slows_down_and_recovers(
    monkeypatch: pytest.MonkeyPatch, discovery: dict[str, object]
) -> None:
    register(monkeypatch, Costs)
    monkeypatch.setattr(Costs, "told", [])
    net = Net.line(3, "costs", {"faults": [SLOW], "discovery": discovery})
    net.run(30)
    told = [(node, now, neighbor, round(cost_s, 6)) for node, now, neighbor, cost_s in Costs.told if now >= 10.0]
    assert told == [(1, 10.0, 0, 0.501), (0, 10.0, 1, 0.501), (1, 20.0, 0, 0.001), (0, 20.0, 1, 0.001)]
    assert len(net.rows("link_changed", peer=0, node=1)) == 2


def test_a_link_that_comes_up_slow_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Costs)
    monkeypatch.setattr(Costs, "told", [])
    Net.contacts([(0, 1, 15.0, 30.0)], "costs", {"faults": [SLOW]}).run(16)
    assert [round(cost_s, 6) for _, _, _, cost_s in Costs.told] == [0.501, 0.501]


def test_what_goes_over_a_slow_link_comes_later_and_in_order() -> None:
    net = Net.line(3, scenario={"faults": [SLOW, SLOW]})
    net.subscribe(2)
    first = net.publish(0)
    net.run(1)
    assert net.list_delivered(2) == [first]
    net.run(18.5)
    # Twice slow, so a second late: it is under way when the link recovers half a second from now.
    second = net.publish(0)
    net.run(0.6)
    third = net.publish(0)
    net.run(0.3)
    assert net.list_delivered(2) == [first], "nothing overtakes"
    net.run(0.2)
    assert net.list_delivered(2) == [first, second, third]
    [late] = net.rows("deliver", event=str(EventId(0, 1)))
    assert late["time_s"] == pytest.approx(20.502)
    net.run(10)
    assert not net.simulation.network._slow, "nothing is kept of links that have recovered"


def test_what_is_under_way_to_a_node_that_starts_anew_is_lost() -> None:
    net = Net.line(2, scenario={"faults": [SLOW]})
    net.subscribe(1)
    net.run(11)
    net.publish(0)
    net.run(0.1)
    net.crash(1)
    net.restart(1)
    net.run(5)
    assert net.list_delivered(1) == []
    assert net.count_dropped("out_of_reach") == 1


def test_a_lease_goes_on_over_a_slow_link() -> None:
    net = Net.line(2, scenario={"faults": [{**SLOW, "delay_s": 5.0}]})
    net.subscribe(1)
    net.run(11)
    net.publish(0, lease_s=2.0)
    net.run(8)
    assert net.list_delivered(1) == []
    assert net.count_dropped("lease_over") == 1


def test_a_link_joins_two_nodes() -> None:
    with pytest.raises(UserError, match=r"faults\[0\].between: names two different nodes"):
        line(faults=[{**SLOW, "between": [1, 1]}])
