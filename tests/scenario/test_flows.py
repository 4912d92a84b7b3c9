"""Unicast flows: how they are drawn, what is refused, and what the metrics say of them."""

from itertools import pairwise
from random import Random

import pytest

from carrycast.core.model import Event, EventId, Subscription, SubscriptionId
from carrycast.core.wire import Traffic
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario import Scenario, parse_scenario
from carrycast.sim.scenario.flows import FlowEntry, draw_flows
from carrycast.sim.scenario.workload import PublishEntry, SubscribeEntry, draw_workload
from carrycast.trace import METRICS, Level
from carrycast.trace.facts import DeliverFact, FrameFact, PublishFact, SubscribeFact, facts_of_rows
from carrycast.trace.folds.flows import FlowCostFold, FlowFold
from carrycast.trace.folds.fold import fold_facts
from carrycast.trace.folds.registry import more_metrics


def scenario(*flows: dict[str, object], **tables: object) -> Scenario:
    return parse_scenario(
        {
            "duration_s": 20.0,
            "nodes": 4,
            "mobility": {"model": "line", "spacing_m": 80.0},
            "radio": {"model": "disk", "range_m": 100.0},
            "discovery": {"mode": "none"},
            "protocol": {"name": "unicast"},
            "flow": list(flows),
            **tables,
        },
        "flows",
    )


def test_each_source_has_one_flow_to_another_node_at_its_rate() -> None:
    entry = FlowEntry(source=[1, 2], to=[2, 3], rate_per_s=4.0, from_s=5.0, to_s=15.0)
    flows = draw_flows([entry], {}, 6, 100.0, 1)
    assert [(flow.number, flow.source) for flow in flows] == [(0, 1), (1, 2)]
    assert flows[1].target == 3, "never itself"
    for flow in flows:
        assert len(flow.times_s) == 40
        assert 5.0 <= flow.times_s[0] < 5.25
        assert all(later - earlier == pytest.approx(0.25) for earlier, later in pairwise(flow.times_s))
    assert flows[0].times_s[0] != flows[1].times_s[0], "each has its own phase"


def test_poisson_flows_have_exponential_gaps() -> None:
    (flow,) = draw_flows([FlowEntry(source=[0], rate_per_s=10.0, spacing="poisson")], {}, 2, 2000.0, 1)
    gaps_s = [later - earlier for earlier, later in pairwise(flow.times_s)]
    mean_s = sum(gaps_s) / len(gaps_s)
    assert mean_s == pytest.approx(0.1, rel=0.05)
    assert sum(gap_s > 0.2 for gap_s in gaps_s) / len(gaps_s) == pytest.approx(0.135, abs=0.02), "e to the power of -2"


def test_flows_leave_the_rest_of_the_workload_as_it_was() -> None:
    entries = [SubscribeEntry(nodes=3)], [PublishEntry(nodes=[3], count=9, payload_bytes=5)]
    plain = draw_workload(*entries, {}, 5, 100.0, 7)
    more = draw_workload(*entries, {}, 5, 100.0, 7, [FlowEntry(source=[0], to=[1], rate_per_s=1.0)])
    assert [one for one in more.publishes if one.event.id.source == 3] == plain.publishes
    assert [one for one in more.subscribes if one.subscription.filter == "true"] == plain.subscribes


def test_sources_and_destinations_may_be_roles() -> None:
    found = scenario({"from": "car", "to": "server", "rate_per_s": 1.0}, roles={"car": [0, 1], "server": [3]})
    events = run(found, 1, Level.DELIVERIES).trace.events().to_pylist()
    assert {(row["source"], row["attributes"]) for row in events} == {
        (0, '{"flow": 0, "to": 3}'),
        (1, '{"flow": 1, "to": 3}'),
    }


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ({"from": [0], "to": [0], "rate_per_s": 1.0}, r"flow\[0\].to: node 0 would send to itself"),
        ({"from": [9], "rate_per_s": 1.0}, r"flow\[0\].from: there is no node 9"),
        ({"from": [0], "to": "cars", "rate_per_s": 1.0}, r"flow\[0\].to: 'cars' is none of all"),
        ({"from": [0]}, r"flow\[0\].rate_per_s"),
        ({"from": [0], "rate_per_s": 0.0}, r"flow\[0\].rate_per_s"),
        ({"rate_per_s": 1.0}, r"flow\[0\].from"),
        ({"from": [0], "rate_per_s": 1.0, "from_s": 30.0}, r"flow\[0\].from_s: is after the end of the run, 20 s"),
        ({"from": [0], "rate_per_s": 1.0, "from_s": 5.0, "to_s": 4.0}, r"flow\[0\].to_s: must not be before"),
        ({"from": [0], "rate_per_s": 1.0, "rate": 1.0}, r"flow\[0\]: unknown key 'rate'"),
    ],
)
def test_a_flow_that_cannot_be_played_is_refused_in_one_line(flow: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        scenario(flow)
    assert "\n" not in str(error.value)


def test_too_many_packets_and_a_lonely_source_are_refused() -> None:
    with pytest.raises(UserError, match="that makes 10,000,000 packets"):
        draw_flows([FlowEntry(source=[0], rate_per_s=1e5)], {}, 2, 100.0, 1)
    with pytest.raises(UserError, match="node 0 has no destination besides itself"):
        draw_flows([FlowEntry(source=[0], rate_per_s=1.0)], {}, 1, 100.0, 1)


# Metrics.


def packet(number: int, sent_s: float, flow: int = 0, to: int = 3, counted: bool = True) -> PublishFact:
    return PublishFact(sent_s, 0, event=Event(EventId(0, number), {"flow": flow, "to": to}), counted=counted)


def arrival(number: int, time_s: float, hops: int = 2, node: int = 3) -> DeliverFact:
    return DeliverFact(time_s, node, subscription=SubscriptionId(node, 0), event=EventId(0, number), hops=hops)


def subscription(flow: int = 0, node: int = 3) -> SubscribeFact:
    return SubscribeFact(0.0, node, subscription=Subscription(SubscriptionId(node, 0), f"flow = {flow}"))


def test_the_metrics_of_a_flow_worked_by_hand() -> None:
    """Delays 0.1, 0.3, 0.2 s: the jitter is the mean of 0.2 and 0.1 s. One of four packets is lost."""
    facts = [
        subscription(),
        *(packet(number, float(number)) for number in range(4)),
        packet(9, 9.0, counted=False),
        packet(10, 9.0, flow=5),
        arrival(0, 0.1, hops=1),
        arrival(1, 1.3, hops=2),
        arrival(1, 1.4, hops=2),
        arrival(2, 2.2, hops=3),
        arrival(3, 3.2, node=2),
    ]
    found = fold_facts(FlowFold(), facts)
    assert found == {
        "flow_packets": 4,
        "flow_delivered": 3,
        "flow_delivery_ratio": 0.75,
        "flow_delay_mean_s": pytest.approx(0.2),
        "flow_delay_p50_s": pytest.approx(0.2),
        "flow_delay_p95_s": pytest.approx(0.29),
        "flow_jitter_mean_s": pytest.approx(0.15),
        "flow_hops_mean": 2.0,
    }
    frames = [
        FrameFact(0.0, 0, traffic=Traffic.DATA, size_bytes=9, unicast=True, transmissions=6),
        FrameFact(0.0, 0, traffic=Traffic.CONTROL, size_bytes=9, unicast=False, transmissions=4),
        FrameFact(0.0, 0, traffic=Traffic.DISCOVERY, size_bytes=9, unicast=False, transmissions=2),
    ]
    assert fold_facts(FlowCostFold(), [*facts, *frames]) == {
        "flow_control_per_packet": 2.0,
        "flow_transmissions_per_packet": 2.0,
    }


def test_folds_of_pieces_of_runs_can_be_merged() -> None:
    one, other = FlowFold(), FlowFold()
    fold_facts(one, [subscription(), packet(0, 0.0), arrival(0, 0.5)])
    fold_facts(other, [subscription(), packet(0, 0.0), packet(1, 1.0), arrival(1, 1.1)])
    one.merge(other)
    assert one.result()["flow_delivery_ratio"] == pytest.approx(2 / 3)
    assert one.result()["flow_delay_mean_s"] == pytest.approx(0.3)
    cost, more = FlowCostFold(), FlowCostFold()
    fold_facts(cost, [subscription(), packet(0, 0.0), arrival(0, 0.5)])
    fold_facts(more, [FrameFact(0.0, 0, traffic=Traffic.CONTROL, size_bytes=9, unicast=False)])
    cost.merge(more)
    assert cost.result()["flow_control_per_packet"] == 1.0


def test_a_run_and_its_trace_have_the_same_metrics() -> None:
    rng = Random(3)
    flows = [{"from": [node], "rate_per_s": rng.uniform(1, 5), "from_s": 1.0} for node in range(4)]
    done = run(scenario(*flows, faults=[{"kind": "loss", "probability": 0.1}]), 3, Level.FULL)
    events = {row["event"]: row for row in done.trace.events().to_pylist()}
    subscriptions = {row["subscription"]: row for row in done.trace.subscriptions().to_pylist()}
    for fold in (FlowFold(), FlowCostFold()):
        found = fold_facts(fold, facts_of_rows(done.trace.table().to_pylist(), events, subscriptions))
        assert found == {name: done.metrics[name] for name in fold.metrics}
    assert done.metrics["flow_packets"] == done.metrics["published"]
    assert done.metrics["flow_delivery_ratio"] == done.metrics["delivery_ratio"]
    assert done.metrics["flow_delay_p95_s"] == done.metrics["delay_p95_s"]
    assert done.metrics["flow_hops_mean"] == done.metrics["hops_mean"]


def test_a_run_without_flows_has_no_metrics_of_them() -> None:
    done = run(scenario(publish=[{"count": 3, "attributes": {"to": 2}}], subscribe=[{}]), 1)
    assert done.metrics.keys() == METRICS.keys()
    assert not done.metrics.keys() & more_metrics(flows=True).keys()


def test_a_publish_subscribe_protocol_carries_flows_too() -> None:
    done = run(scenario({"from": [0], "to": [3], "rate_per_s": 2.0}, protocol={"name": "flooding"}), 1)
    assert done.metrics["flow_delivery_ratio"] == 1.0
