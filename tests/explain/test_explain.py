"""`explain`: stories that are known, told from their traces."""

from pathlib import Path

import pytest

from carrycast.analysis.explain.timeline import Timeline, event_timeline
from carrycast.analysis.explain.timeline_text import timeline_lines
from carrycast.sim.testing import Net
from tests.cli.console import EXAMPLES, call

CONTACTS = [(0, 1, 0.0, 10.0), (1, 2, 50.0, 60.0), (2, 3, 100.0, 110.0), (1, 3, 120.0, 130.0)]


def story(tmp_path: Path, protocol: str, node: int, lease_s: float = 600.0, **settings: int) -> Timeline:
    """What is told of an event that 0 publishes at 1 s and that 3 wants, and 2 does not."""
    net = Net.contacts(CONTACTS, protocol, None, 1, **settings)
    net.subscribe(3, "topic = 1")
    net.subscribe(2, "topic = 2")
    net.run(1)
    net.publish(0, {"topic": 1}, lease_s=lease_s)
    net.run(149)
    net.stop()
    net.simulation.trace.save(tmp_path / "trace")
    return event_timeline(tmp_path / "trace", "0:0", node)


def test_a_delivery_has_its_way(tmp_path: Path) -> None:
    tale = story(tmp_path, "epidemic", 3)
    assert [node for node, _ in tale.way] == [0, 1, 2, 3]
    assert tale.delivered_s == pytest.approx(100.0, abs=0.1)
    assert [node for node, _ in tale.earliest] == [0, 1, 2, 3]
    assert tale.wanted == "topic = 1"
    text = "\n".join(timeline_lines(tale))
    assert "It was delivered at 100.0" in text
    assert "from 0, 1 at 1.0" in text


def test_an_event_that_its_publisher_kept_could_have_come(tmp_path: Path) -> None:
    tale = story(tmp_path, "direct", 3)
    assert tale.delivered_s is None
    assert tale.missed == []
    assert tale.contacts == 2
    assert tale.last is not None
    assert (tale.last.node, tale.last.let_go_s) == (0, None)
    assert tale.earliest[-1][1] == pytest.approx(100.0, abs=0.1)
    text = "\n".join(timeline_lines(tale))
    assert "In 2 contacts until then it met nobody who carried it." in text
    assert "The last copy is still with node 0." in text
    assert "By the links as the nodes saw them it could have come at 100.0" in text


def test_an_event_whose_lease_ends_on_the_way_could_not_have_come(tmp_path: Path) -> None:
    tale = story(tmp_path, "epidemic", 3, lease_s=80.0)
    assert not tale.possible
    assert tale.last is not None
    assert tale.last.reason == "lease_over"
    text = "\n".join(timeline_lines(tale))
    assert "No protocol could have: no chain of links as the nodes saw them leads there before at 81.000 s" in text


def test_a_carrier_next_to_the_node_that_hands_nothing_over_is_named(tmp_path: Path) -> None:
    tale = story(tmp_path, "epidemic", 2, buffer=10)
    assert tale.wanted is None
    assert "none of its filters matches" in tale.unwanted
    tale = story(tmp_path / "direct", "spray_and_wait", 2, copies=2)
    assert [(one.holder, round(one.from_s)) for one in tale.missed] == [(1, 50)]
    assert "Node 1 carried it and was in contact from 50.0" in "\n".join(timeline_lines(tale))


def test_what_nobody_carries_is_told_so(tmp_path: Path) -> None:
    tale = story(tmp_path, "flooding", 3)
    assert tale.last is None
    assert "Nobody carried it" in "\n".join(timeline_lines(tale))
    assert "it published the event itself" in "\n".join(timeline_lines(event_timeline(tmp_path / "trace", "0:0", 0)))


def test_a_crash_takes_the_copy_with_it(tmp_path: Path) -> None:
    net = Net.contacts(CONTACTS, "direct")
    net.subscribe(3, "topic = 1")
    net.run(1)
    net.publish(0, {"topic": 1}, lease_s=600.0)
    net.run(10)
    net.crash(0)
    net.run(100)
    net.stop()
    net.simulation.trace.save(tmp_path / "trace")
    tale = event_timeline(tmp_path / "trace", "0:0", 3)
    assert tale.last is not None
    assert (tale.last.node, tale.last.reason) == (0, "crash")


def test_the_command_tells_it_from_a_run_with_the_contacts_of_the_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert call("run", EXAMPLES / "quick.toml", "--trace", trace).status == 0
    done = call("explain", trace, "0:0", "3")
    assert done.status == 0
    assert "By the contacts it could have been there" in done.out
    found = call("explain", trace, "0:0", "3", "--json").object()
    assert found["possible"] is True
    assert (
        "there is no event 0:99999 in it; events are named SOURCE:NUMBER, such as"
        in call("explain", trace, "0:99999", "3").refusal()
    )
    assert "there is no node 77 in it" in call("explain", trace, "0:0", "77").refusal()


def test_a_trace_of_deliveries_alone_is_refused_with_the_option_to_use(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert call("run", EXAMPLES / "quick.toml", "--trace", trace, "--level", "deliveries").status == 0
    refusal = call("explain", trace, "0:0", "3").refusal()
    assert "keeps deliveries, which does not say who held an event" in refusal
    assert "--level full" in refusal
