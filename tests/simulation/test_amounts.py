"""What protocols hand to their routers and the values that they note, by message and by role."""

import pytest

from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Fact, Place, Protocol, UsesRouter
from carrycast.core.wire import Codec, Layer, Message
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import RunResult, run
from carrycast.sim.scenario.measures import RequestedMetric, aggregate
from tests.simulation.worlds import line, register


class Short(Message, frozen=True, tag=1):
    """A few bytes."""

    text: str


class Long(Message, frozen=True, tag=2):
    """More of them."""

    text: str


class Caller(Protocol, UsesRouter):
    """Routes what each event says to node 0, and notes how long it was."""

    name = "caller"
    router = "aodv"
    messages = (Short, Long)

    def on_publish(self, now: float, event: Event) -> None:
        text = "x" * int(event.attributes["length"])
        kind = Long if len(text) > 10 else Short
        self.port.route(0, kind(text))
        self.port.note(Fact("called", value=float(len(text))))

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        pass

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        pass


MORE: list[dict[str, object]] = [
    {"name": "all_bytes", "counts": "routed", "per": "run"},
    {"name": "all", "counts": "routed", "per": "run", "unit": "messages"},
    {"name": "long_bits", "counts": "routed", "messages": ["Long"], "role": "ends", "unit": "bits"},
    {"name": "middle", "counts": "routed", "role": "middle", "unit": "messages", "per": "node"},
    {"name": "nobody", "counts": "routed", "role": "none", "unit": "messages"},
    {"name": "length_mean", "counts": "values", "fact": "called"},
    {"name": "length_max", "counts": "values", "fact": "called", "of": "max"},
    {"name": "length_of_middle", "counts": "values", "fact": "called", "of": "sum", "role": "middle"},
    {"name": "never", "counts": "values", "fact": "noted"},
]


def outcome(monkeypatch: pytest.MonkeyPatch, more: list[dict[str, object]] = MORE, **window: float) -> RunResult:
    register(monkeypatch, Caller)
    monkeypatch.setattr("carrycast.core.plugins.folders_of", lambda package: ["aodv", "caller"])
    publish = [
        {"nodes": [2], "interval_s": 1.0, "to_s": 4.0, "attributes": {"length": 20}},
        {"nodes": [1], "interval_s": 2.0, "to_s": 4.0, "attributes": {"length": 5}},
        # To itself: no router is asked.
        {"nodes": [0], "interval_s": 2.0, "to_s": 4.0, "attributes": {"length": 30}},
    ]
    roles = {"ends": [0, 2], "middle": [1], "none": []}
    scenario = line(
        protocol={"name": "caller"}, roles=roles, publish=publish, measure={"more": more, **window}, duration_s=10.0
    )
    return run(scenario, 1)


def test_what_is_handed_to_routers_is_told_by_message_and_role(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = outcome(monkeypatch).metrics
    codec = Codec(Layer.DISSEMINATION, Caller.name, Caller.messages)
    long_bytes, short_bytes = len(codec.encode(Long("x" * 20))), len(codec.encode(Short("x" * 5)))
    assert metrics["all"] == 5 + 3, "what node 0 says to itself is handed to nobody"
    assert metrics["all_bytes"] == 5 * long_bytes + 3 * short_bytes
    assert metrics["long_bits"] == 8 * 5 * long_bytes / 2 / 10, "by one of two nodes in ten seconds"
    assert metrics["middle"] == 3.0
    assert metrics["nobody"] is None


def test_values_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = outcome(monkeypatch).metrics
    assert metrics["length_mean"] == pytest.approx((5 * 20 + 3 * 5 + 3 * 30) / 11)
    assert metrics["length_max"] == 30.0
    assert metrics["length_of_middle"] == 15.0
    assert metrics["never"] is None


def test_only_the_measured_window_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = outcome(monkeypatch, from_s=1.0, to_s=2.0).metrics
    assert metrics["all"] == 2 + 1
    assert metrics["length_max"] == 30.0
    assert metrics["middle"] == 1.0
    assert outcome(monkeypatch, from_s=2.0, to_s=2.0).metrics["long_bits"] is None, "no time has no rate"


def test_whatever_is_asked_for_the_run_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, asked = outcome(monkeypatch, []), outcome(monkeypatch)
    assert plain.fingerprint == asked.fingerprint
    assert plain.metrics.items() <= asked.metrics.items()


@pytest.mark.parametrize(("statistic", "value"), [("mean", 2.0), ("max", 4.0), ("min", 1.0), ("sum", 6.0)])
def test_several_values_as_one(statistic: str, value: float) -> None:
    assert aggregate([1.0, 4.0, 1.0], statistic) == value
    assert aggregate([], statistic) is None


@pytest.mark.parametrize(
    ("asked", "meaning"),
    [
        (
            RequestedMetric(name="a", counts="routed", messages=["Topology"], role="broker", unit="bits"),
            "Topology: bits handed to routers by nodes with the role broker in the measured window per node and second",
        ),
        (
            RequestedMetric(name="a", counts="values", fact="path", of="max"),
            "max of the values noted with path in the measured window",
        ),
        (
            RequestedMetric(name="a", counts="probe", probe="load", role="broker", across="max", every_s=5.0),
            "mean of samples of load, one every 5 s, each the max over nodes with the role broker",
        ),
        (RequestedMetric(name="a", counts="probe", probe="paths"), "mean of samples of paths, one every 10 s"),
    ],
)
def test_what_is_asked_for_is_said_in_words(asked: RequestedMetric, meaning: str) -> None:
    assert asked.meaning() == meaning


def test_a_role_that_nobody_has_is_refused() -> None:
    with pytest.raises(UserError, match="role: 'brokers' is none of broker"):
        line(roles={"broker": [0]}, measure={"more": [{"name": "a", "counts": "routed", "role": "brokers"}]})
