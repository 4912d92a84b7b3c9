"""Repositories, requests, clients that are born, drawn cuts, waiting at nodes: what a scenario can say of them."""

from collections.abc import Mapping

import pytest

from carrycast.core.model import AdvertisementId, Event, EventId, NodeId, Request, RequestId
from carrycast.core.protocol import AnswersRequests, Fact, Interface, Protocol
from carrycast.core.wire import EventMessage, Message
from carrycast.errors import UserError
from carrycast.sim.engine.observers.checkers import ViolationError
from carrycast.sim.engine.simulation import RunResult, Simulation, run
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.trace import Level
from tests.simulation.worlds import line, register

MEASURES = [
    {"name": "publish_ratio", "counts": "pairs"},
    {"name": "request_ratio", "counts": "ratio", "fact": "asked", "against": "ask"},
    {"name": "response_ratio", "counts": "ratio", "fact": "response", "against": "respond"},
    {"name": "responded_ratio", "counts": "ratio", "fact": "ask_complete", "against": "ask"},
    {"name": "response_hops", "counts": "values", "fact": "response"},
    {"name": "stability_s", "counts": "values", "fact": "ask_complete"},
]

PAPER = {"name": "tree", "links": "given", "refresh_s": float("inf"), "no_route": "drop"}


def brokers(nodes: int = 7, **tables: object) -> Scenario:
    """A balanced binary tree of brokers over wires, a repository at node 0, one event of each of two roles."""
    world: dict[str, object] = {
        "name": "brokers",
        "duration_s": 100.0,
        "nodes": nodes,
        "wires": [{"tree": 2, "delay_s": 0.01}],
        "discovery": {"mode": "oracle"},
        "protocol": {"name": "tree", "links": "given", "refresh_s": float("inf")},
        "roles": {"broker": "all"},
        "advertise": [{"nodes": [0]}],
        "publish": [
            {"nodes": [0], "count": 1, "from_s": 1.0, "to_s": 2.0, "lease_s": 1e4, "attributes": {"role": role}}
            for role in (1, 2)
        ],
        "measure": {"more": MEASURES},
    }
    return parse_scenario({**world, **tables}, "brokers")


def rows(done: RunResult, kind: str) -> list[Mapping[str, object]]:
    return [row for row in done.trace.table().to_pylist() if row["kind"] == kind]


def test_a_request_is_in_the_trace_with_each_of_its_answers_and_its_end() -> None:
    done = run(brokers(request=[{"nodes": [5], "at_s": 10.0, "filter": "role = 1"}]), 1, Level.DELIVERIES)
    (asked,), (answer,), (end,) = rows(done, "request"), rows(done, "answer"), rows(done, "close")
    assert (asked["node"], asked["time_s"], asked["subscription"]) == (5, 10.0, "5:0")
    # Two wires of 10 ms there and two back.
    assert (answer["node"], answer["subscription"], answer["event"], answer["hops"]) == (5, "5:0", "0:0", 2)
    assert answer["time_s"] == pytest.approx(10.04)
    assert (end["subscription"], end["value"]) == ("5:0", 1.0)
    assert done.metrics["request_ratio"] == done.metrics["response_ratio"] == done.metrics["responded_ratio"] == 1.0
    assert done.metrics["response_hops"] == 2.0
    assert done.metrics["stability_s"] == pytest.approx(0.04)


def test_who_subscribes_with_history_gets_what_came_before_once_and_nobody_else_does() -> None:
    subscribe = [
        {"nodes": [5], "filter": "role = 1", "at_s": 10.0, "history": True},
        {"nodes": [6], "filter": "role = 1", "at_s": 10.0},
    ]
    done = run(brokers(subscribe=subscribe), 1, Level.DELIVERIES)
    assert [(row["node"], row["event"]) for row in rows(done, "deliver")] == [(5, "0:0")]


def test_a_request_and_a_history_wait_for_a_link_that_is_cut_and_not_for_ever() -> None:
    """Node 1 is alone from 5 s to 20 s: who waits so long is answered when the link is back, as in the live world."""
    cut = [{"kind": "link_cut", "between": (0, 1), "at_s": 5.0, "for_s": 15.0}]
    tables = {
        "faults": cut,
        "subscribe": [{"nodes": [1], "filter": "role = 1", "at_s": 10.0, "history": True}],
        "request": [
            {"nodes": [1], "at_s": 10.0, "filter": "role = 1", "patience_s": patience_s} for patience_s in (5.0, 30.0)
        ],
    }
    done = run(brokers(3, **tables), 1, Level.DELIVERIES)
    assert [(row["subscription"], row["value"], row["time_s"]) for row in rows(done, "close")] == [
        ("1:0", 0.0, 15.0),
        ("1:1", 1.0, pytest.approx(20.0, abs=1.0)),
    ]
    assert [row["event"] for row in rows(done, "answer")] == ["0:0"]
    assert [row["time_s"] for row in rows(done, "deliver")] == [pytest.approx(20.0, abs=1.0)]
    paper = run(brokers(3, **tables, protocol=PAPER), 1, Level.DELIVERIES)
    assert [(row["value"], row["time_s"]) for row in rows(paper, "close")] == [(0.0, 10.0)] * 2
    assert rows(paper, "deliver") == []


def test_brokers_are_the_nodes_of_the_role_that_is_named() -> None:
    hubs = {"name": "tree", "links": "given", "refresh_s": float("inf"), "role": "hub"}
    requests = [{"nodes": [5], "at_s": 10.0, "filter": "role = 1"}]
    # Node 5 hangs below node 2: a client of it, a hub itself, or with nobody to turn to.
    for roles, served in (({"hub": "all"}, 1), ({"hub": [0, 2]}, 1), ({"hub": [0, 2, 5, 6]}, 1), ({"hub": [0, 1]}, 0)):
        done = run(brokers(protocol=hubs, roles=roles, request=requests), 1, Level.DELIVERIES)
        assert len(rows(done, "answer")) == served
    with pytest.raises(UserError, match="hub"):
        brokers(protocol=hubs)


def test_clients_are_born_at_a_rate_and_leave_after_a_lifetime() -> None:
    births = {
        "filter": "role = {role}",
        "draw": {"role": {"integers": [1, 2]}},
        "births_per_s": 0.5,
        "lifetime_s": 10.0,
    }
    done = run(brokers(subscribe=[births], duration_s=200.0), 1, Level.DELIVERIES)
    born, gone = len(rows(done, "subscribe")), len(rows(done, "unsubscribe"))
    # 7 nodes, 200 s: 700 births on average, and about 7 * 0.5 * 10 there at any time.
    assert 700 - 80 < born < 700 + 80
    assert 10 < born - gone < 70
    with pytest.raises(UserError, match="lifetime_s: is for clients that are born"):
        brokers(subscribe=[{"lifetime_s": 3.0}])


def test_cuts_are_drawn_from_the_links_there_are_one_at_a_time() -> None:
    cuts = [{"kind": "link_cuts", "every_s": 10.0, "for_s": 4.0}]
    simulation = Simulation(brokers(faults=cuts, duration_s=60.0), 3, Level.FULL)
    simulation.start()
    there = []
    for second in range(60):
        simulation.advance(second + 0.5)
        there.append(sum(len(node.links) for node in simulation.network.nodes) // 2)
    # A tree of seven has six links; from 10 s on one is cut for 4 s of every 10.
    assert there == [6] * 10 + ([5] * 4 + [6] * 6) * 5
    done = simulation.finish()
    lost = {(row["node"], row["peer"]) for row in rows(done, "link_down")}
    assert len(lost) > 2, "not always the same link"


def test_several_may_be_cut_at_once_and_intervals_may_vary() -> None:
    cuts = [{"kind": "link_cuts", "every_s": 5.0, "for_s": 30.0, "at_once": 2, "exponential": True}]
    simulation = Simulation(brokers(faults=cuts), 3)
    simulation.start()
    fewest = 6
    for second in range(100):
        simulation.advance(second)
        fewest = min(fewest, sum(len(node.links) for node in simulation.network.nodes) // 2)
    assert fewest == 4


def test_a_node_that_is_cut_off_hears_nobody_and_has_lost_nothing() -> None:
    cut_off = [{"kind": "cut_off", "nodes": [1], "at_s": 20.0, "for_s": 10.0}]
    publish = [
        {"nodes": [0], "count": 1, "from_s": at_s, "to_s": at_s, "lease_s": 1e4, "attributes": {"role": 1}}
        for at_s in (5.0, 25.0, 40.0)
    ]
    done = run(brokers(3, faults=cut_off, publish=publish, subscribe=[{"nodes": [1, 2]}]), 1, Level.FULL)
    assert sorted((row["event"], row["node"]) for row in rows(done, "deliver")) == [
        ("0:0", 1),
        ("0:0", 2),
        ("0:1", 2),
        ("0:2", 1),
        ("0:2", 2),
    ]
    assert rows(done, "crash") == []


def test_messages_wait_for_the_node_that_looks_at_one_at_a_time_and_a_full_queue_drops() -> None:
    publish = [{"nodes": [0], "interval_s": 0.01, "from_s": 10.0, "to_s": 10.095, "attributes": {"role": 1}}]
    subscribe = [{"nodes": [1]}]
    service = {"time_s": 0.1}
    done = run(brokers(3, publish=publish, subscribe=subscribe, service=service), 1, Level.FULL)
    times = [row["time_s"] for row in rows(done, "deliver")]
    # Each is looked at 100 ms after the one before; the first arrives after 10 ms.
    assert times == [pytest.approx(10.01 + 0.1 * place) for place in range(1, 11)]
    full = run(brokers(3, publish=publish, subscribe=subscribe, service={"time_s": 0.1, "queue": 4}), 1, Level.FULL)
    assert len(rows(full, "deliver")) == 5
    assert [row["reason"] for row in rows(full, "drop")] == ["service_queue_full"] * 5


def test_ratios_per_client_count_each_subscription_of_a_node() -> None:
    twice = {"nodes": [5], "filter": "role = {role}", "draw": {"role": {"choice": [1]}}}
    done = run(
        brokers(subscribe=[twice, {"nodes": [5], "filter": "role < 5"}, {"nodes": [0], "filter": "role = 2"}]), 1
    )
    # Role 1 serves two clients of node 5, role 2 one of them and one of the source's own node.
    assert done.metrics["publish_ratio"] == 1.0
    assert done.metrics["eligible"] == 2


def test_a_client_that_left_has_missed_what_did_not_come_to_it() -> None:
    cut = [{"kind": "link_cut", "between": (0, 1), "at_s": 5.0, "for_s": 90.0}]
    publish = [{"nodes": [0], "count": 1, "from_s": 10.0, "to_s": 10.0, "attributes": {"role": 1}}]
    subscribe = [{"nodes": [1, 2], "until_s": 50.0}]
    assert run(brokers(3, faults=cut, publish=publish, subscribe=subscribe), 1).metrics["publish_ratio"] == 0.5


def test_of_cut_off_askers_as_many_get_no_answer_as_the_closed_form_says() -> None:
    cuts = [{"kind": "link_cuts", "every_s": 10.0, "for_s": 5.0}]
    requests = [{"rate_per_s": 1.0, "from_s": 5.0, "patience_s": 2.0}]
    done = run(brokers(15, faults=cuts, request=requests, duration_s=2000.0, protocol=PAPER), 1)
    # A link is down half of the time, and 0.162 of the brokers of 15 are then cut off from the root [facts, 6.1].
    ratio = done.metrics["request_ratio"]
    assert ratio is not None
    assert ratio == pytest.approx(1 - 0.5 * 0.162, abs=0.01)


def test_with_recovery_everything_comes_that_links_ever_let_through() -> None:
    cuts = [{"kind": "link_cuts", "every_s": 20.0, "for_s": 12.0, "to_s": 250.0}]
    publish = [
        {"nodes": [0], "interval_s": 5.0, "to_s": 250.0, "lease_s": 1e4, "attributes": {"role": {"integers": [1, 4]}}}
    ]
    born = {"filter": "role = {role}", "draw": {"role": {"integers": [1, 4]}}, "births_per_s": 0.05, "history": True}
    tables = {"faults": cuts, "publish": publish, "subscribe": [{**born, "until_s": 250.0}], "duration_s": 300.0}
    lossy = run(brokers(7, **tables, protocol=PAPER), 1).metrics
    recovering = {**PAPER, "recover_s": 2.0, "retries": 30, "history_s": 60.0}
    whole = run(brokers(7, **tables, protocol=recovering), 1).metrics
    for ratio in ("publish_ratio", "responded_ratio"):
        assert float(str(lossy[ratio])) < 0.97
        assert whole[ratio] == 1.0
    assert float(str(whole["control_bytes"])) > float(str(lossy["control_bytes"])), "which is not for nothing"


def test_a_repository_that_crashes_keeps_what_it_stored_and_lets_it_go_at_the_end_of_its_lease() -> None:
    crash = [{"kind": "crash", "nodes": [0], "at_s": 20.0, "down_s": 5.0}]
    publish = [{"nodes": [1], "count": 1, "from_s": 5.0, "to_s": 5.0, "lease_s": 60.0, "attributes": {"role": 1}}]
    requests = [{"nodes": [5], "at_s": at_s} for at_s in (30.0, 80.0)]
    done = run(brokers(7, faults=crash, publish=publish, request=requests), 1, Level.FULL)
    assert [row["subscription"] for row in rows(done, "answer")] == ["5:0"]
    assert [(row["subscription"], row["value"]) for row in rows(done, "close")] == [("5:0", 1.0), ("5:1", 1.0)]
    assert [row["time_s"] for row in rows(done, "evict")] == [pytest.approx(65.0, abs=0.1)]


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"wires": [{}]}, "wires\\[0\\]: needs either between, pairs of nodes, or tree"),
        ({"wires": [{"tree": 2, "between": [(0, 1)]}]}, "needs either between"),
        ({"request": [{"nodes": [1]}]}, "request\\[0\\]: needs either at_s or rate_per_s"),
        ({"request": [{"at_s": 1.0, "filter": "role ="}]}, "request\\[0\\].filter"),
        ({"advertise": [{"nodes": [0], "at_s": 5.0, "until_s": 1.0}]}, "advertise\\[0\\].until_s: must be after"),
        ({"advertise": [{"nodes": [70]}]}, "advertise\\[0\\].nodes: there is no node 70"),
        ({"faults": [{"kind": "cut_off", "nodes": [1]}]}, "a cut_off needs either at_s or every_s"),
        ({"measure": {"more": [{"name": "x", "counts": "ratio", "fact": "a"}]}}, "against: is needed"),
        ({"wires": []}, "needs either \\[mobility\\] or contacts"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tables: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        brokers(7, **tables)


# The checkers of answers.


class Carried(EventMessage, frozen=True, gc=False, tag=1):
    """An event on its way."""


class WrongAnswers(Protocol, AnswersRequests):
    """Answers what is asked with whatever was published last, and stores what it hears; how wrong is up to it."""

    name = "wrong"
    messages = (Carried,)
    event: Event | None = None

    def on_publish(self, now: float, event: Event) -> None:
        self.port.broadcast(Carried(event, 1, event.lease_s))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Carried)
        self.event = message.event
        self.keep(message.event)

    def keep(self, event: Event) -> None:
        self.port.note(Fact("store", event=event.id))

    def on_request(self, now: float, request: Request) -> None:
        assert self.event is not None
        self.answer(request, self.event)

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        raise AssertionError("nobody goes")

    def answer(self, request: Request, event: Event) -> None:
        self.port.answer(request.id, event, 1)
        self.port.close_request(request.id, complete=True)


class NotStored(WrongAnswers):
    def keep(self, event: Event) -> None: ...


class Twice(WrongAnswers):
    def answer(self, request: Request, event: Event) -> None:
        self.port.answer(request.id, event, 1)
        self.port.answer(request.id, event, 1)


class ToAnother(WrongAnswers):
    def answer(self, request: Request, event: Event) -> None:
        self.port.answer(RequestId(0, 0), event, 1)


class AfterTheEnd(WrongAnswers):
    def answer(self, request: Request, event: Event) -> None:
        self.port.close_request(request.id, complete=True)
        self.port.answer(request.id, event, 1)


class Invented(WrongAnswers):
    def answer(self, request: Request, event: Event) -> None:
        self.port.answer(request.id, Event(EventId(7, 7), {"topic": 1}), 1)


@pytest.mark.parametrize(
    ("kind", "filter", "complaint"),
    [
        (NotStored, "true", "which nobody stored"),
        (Twice, "true", "a second time"),
        (ToAnother, "true", "answered request 0:0, which is not open there"),
        (AfterTheEnd, "true", "which is not open there"),
        (Invented, "true", "which is unknown or long over"),
        (WrongAnswers, "topic = 2", "which it does not fit"),
    ],
)
def test_a_wrong_answer_ends_the_run(
    kind: type[Protocol], filter: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, kind)
    publish = [{"nodes": [0], "count": 1, "to_s": 1.0, "attributes": {"topic": 1}}]
    requests = [{"nodes": [1], "at_s": 3.0, "filter": filter}]
    with pytest.raises(ViolationError, match=complaint):
        run(line(nodes=2, protocol={"name": kind.name}, publish=publish, request=requests), 1)


def test_ids_of_advertisements_and_requests_are_the_nodes_own() -> None:
    made = brokers(advertise=[{"nodes": [0, 3]}], request=[{"nodes": [2], "at_s": 1.0}])
    simulation = Simulation(made, 1)
    simulation.start()
    simulation.advance(2.0)
    assert list(simulation.network.nodes[3].advertisements) == [AdvertisementId(3, 1)]
