"""What processors make for subscriptions: given once, of what fits, and counted by what it was made of."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from carrycast.core.model import Event, EventId, Subscription, SubscriptionId
from carrycast.core.protocol import Token
from carrycast.sim.engine.observers.checkers import Checkers, ViolationError
from carrycast.sim.engine.observers.derived_events import DerivedEvents, EventDerivation
from carrycast.sim.testing import Net
from tests.simulation.modulating import Job, Modulating
from tests.simulation.worlds import register

FUNCTIONS = """
def grid(event):
    return {"kind": "grid"}

def both(event):
    return [{"part": 1}, {"part": 2}]

def odd(event):
    return {"kind": "odd"} if event.attributes["value"] % 2 else None
"""


class CallsTwice(Modulating):
    """Runs each call twice, as two brokers that both believe they are home would."""

    name = "calls_twice"

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        super().on_processed(now, token, state, events, cost_s, error)
        if token == 1:
            [event] = self.heard
            job = Job(next(iter(self.local)), 1)
            self.calls.submit(job.subscription, [event], job)


def net_of(base: Path, monkeypatch: pytest.MonkeyPatch, protocol: type[Modulating] = Modulating) -> Net:
    register(monkeypatch, protocol)
    (base / "f.py").write_text(FUNCTIONS)
    processors = [{"id": name, "function": f"f.py:{name}", "nodes": "all"} for name in ("grid", "both", "odd")]
    return Net.line(3, protocol.name, {"base": str(base), "processors": processors})


def test_an_output_need_not_match_the_filter_of_its_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(tmp_path, monkeypatch)
    net.subscribe(1, "value = 7", processor="grid")
    net.publish(0, {"value": 7})
    net.run(1)
    assert [event.attributes for event in net.list_delivered(1)] == [{"kind": "grid"}]


def test_a_call_may_have_several_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(tmp_path, monkeypatch)
    net.subscribe(1, "value = 7", processor="both")
    net.publish(0, {"value": 7})
    net.publish(0, {"value": 7})
    net.run(1)
    assert [event.attributes["part"] for event in net.list_delivered(1)] == [1, 2, 1, 2]
    assert net.stop().metrics["delivered"] == 2


def test_outputs_of_two_calls_on_one_input_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(tmp_path, monkeypatch, CallsTwice)
    net.subscribe(1, "value = 7", processor="grid")
    net.publish(0, {"value": 7})
    with pytest.raises(
        ViolationError, match=r"delivered event 1:1 to 1:0, which had 1:0, made by the same of the same"
    ):
        net.run(1)


# The checkers one by one.

SOURCE = Event(EventId(0, 1), {"value": 7})
OTHER = Event(EventId(0, 2), {"value": 8})
WANTS = Subscription(SubscriptionId(5, 0), "value = 7", processor="p")


def made(number: int, node: int = 3) -> Event:
    return Event(EventId(node, number), {"out": number})


def checkers() -> Checkers:
    found = Checkers(10)
    found.on_subscribe(WANTS)
    found.on_event(0.0, SOURCE)
    found.on_event(0.0, OTHER)
    return found


def test_two_nodes_that_run_one_call_make_one_output() -> None:
    found = checkers()
    found.on_event(0.0, made(1), EventDerivation("p", (SOURCE,), 0))
    found.on_event(0.0, made(1, node=4), EventDerivation("p", (SOURCE,), 0))
    found.on_deliver(1.0, 5, WANTS.id, made(1))
    with pytest.raises(ViolationError, match="delivered event 4:1 to 5:0, which had 3:1, made by the same of the same"):
        found.on_deliver(1.0, 5, WANTS.id, made(1, node=4))
    found.on_crash(5)
    found.on_deliver(1.0, 5, WANTS.id, made(1, node=4))


def test_the_same_event_twice_is_told_as_ever() -> None:
    found = checkers()
    found.on_event(0.0, made(1), EventDerivation("p", (SOURCE,), 0))
    found.on_deliver(1.0, 5, WANTS.id, made(1))
    with pytest.raises(ViolationError, match="which had 3:1"):
        found.on_deliver(1.0, 5, WANTS.id, made(1))


@pytest.mark.parametrize(
    ("event", "how", "told"),
    [
        (SOURCE, None, "delivered event 0:1 to 5:0, which is to be given what p makes"),
        (made(1), EventDerivation("q", (SOURCE,), 0), "delivered event 3:1 to 5:0, which is to be given what p makes"),
        (
            made(1),
            EventDerivation("p", (OTHER,), 0),
            "delivered event 3:1 to 5:0, though it was made of 0:2, which does not fit",
        ),
        (made(1), EventDerivation("p", (SOURCE, OTHER), 0), "though it was made of 0:2, which does not fit"),
    ],
)
def test_only_what_the_processor_makes_of_what_fits_may_be_given(
    event: Event, how: EventDerivation | None, told: str
) -> None:
    found = checkers()
    if how is not None:
        found.on_event(0.0, event, how)
    with pytest.raises(ViolationError) as violation:
        found.on_deliver(1.0, 5, WANTS.id, event)
    assert told in str(violation.value)


def test_a_plain_subscription_may_be_given_what_several_nodes_made() -> None:
    found = checkers()
    plain = Subscription(SubscriptionId(5, 1), "true")
    found.on_subscribe(plain)
    for node in (3, 4):
        found.on_event(0.0, made(1, node), EventDerivation("p", (SOURCE,), 0))
        found.on_deliver(1.0, 5, plain.id, made(1, node))


def test_an_origin_goes_through_several_processors() -> None:
    outputs = DerivedEvents()
    wants = Subscription(SubscriptionId(5, 0), "true", processor="q")
    # Two nodes ran p on the source; two more ran q on what came of it.
    for node in (1, 2):
        middle = made(1, node)
        outputs.on_derived(middle.id, EventDerivation("p", (SOURCE,), 0))
        outputs.on_derived(EventId(node + 2, 1), EventDerivation("q", (middle,), 0))
    other = made(2, 1)
    outputs.on_derived(other.id, EventDerivation("p", (SOURCE,), 1))
    outputs.on_derived(EventId(9, 1), EventDerivation("q", (other,), 0))
    assert outputs.find_flaw(EventId(3, 1), wants, 0) is None
    assert outputs.find_flaw(EventId(4, 1), wants, 0) == "which had 3:1, made by the same of the same"
    assert outputs.find_flaw(EventId(9, 1), wants, 0) is None, "of the second result of p"


def test_nothing_is_kept_of_what_is_over() -> None:
    outputs = DerivedEvents()
    for node in (3, 4):
        outputs.on_derived(EventId(node, 1), EventDerivation("p", (SOURCE,), 0))
    assert outputs.find_flaw(EventId(3, 1), WANTS, 0) is None
    outputs.on_expired(EventId(3, 1))
    assert outputs.find_flaw(EventId(4, 1), WANTS, 0) is not None, "as long as another of its kind may come"
    outputs.on_expired(EventId(4, 1))
    outputs.on_expired(SOURCE.id)
    assert all(not kept for name, kept in vars(outputs).items() if name != "_count")


def test_a_row_of_processors_may_be_long() -> None:
    """Each result is made of the one before; what is known of the last does not hold all of them, one in another."""
    outputs, source = DerivedEvents(), SOURCE
    for node in (3, 4):
        made = source
        for stage in range(5000):
            result = Event(EventId(node, stage), {"value": 7})
            outputs.on_derived(result.id, EventDerivation("p", (made,), 0))
            made = result
    assert outputs.find_flaw(EventId(3, 4999), WANTS, 0) is None
    assert "made by the same of the same" in str(outputs.find_flaw(EventId(4, 4999), WANTS, 0))


# What is counted.


def test_pairs_are_of_source_message_and_subscription(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(tmp_path, monkeypatch)
    net.subscribe(0, "value >= 0", processor="grid")
    net.subscribe(0, "value >= 0", processor="both")
    net.subscribe(0, "value = 7")
    net.subscribe(2, "value >= 0", processor="odd")
    net.subscribe(1, "value >= 0", processor="grid")
    net.publish(1, {"value": 7})
    net.publish(1, {"value": 8})
    net.run(1)
    metrics = net.stop().metrics
    # Of each message: two processors at node 0 and one at node 2; of the first, the plain subscription too. Its own
    # messages are not owed to node 1, and what processors made is owed to nobody.
    assert metrics["eligible"] == 7
    # But for the one that `odd` makes nothing of.
    assert metrics["delivered"] == 6
    assert metrics["delay_mean_s"] == pytest.approx(0.001)
    assert metrics["hops_mean"] == 1.0
    assert metrics["published"] == 2 + 2 * 3 + 1


def test_the_delay_is_from_the_source_message_to_the_first_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, Modulating)
    (tmp_path / "f.py").write_text(FUNCTIONS)
    slow = {"id": "both", "function": "f.py:both", "nodes": "all", "cost_s": 2.0}
    net = Net.line(2, "modulating", {"base": str(tmp_path), "processors": [slow]})
    net.subscribe(1, "value = 7", processor="both")
    # Over before the output comes, which lives as long again.
    net.publish(0, {"value": 7}, lease_s=1.0)
    net.run(9)
    assert len(net.list_delivered(1)) == 2
    metrics = net.stop().metrics
    assert (metrics["eligible"], metrics["delivered"], metrics["delay_mean_s"]) == (1, 1, 2.001)
