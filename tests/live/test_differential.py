"""The same story gives the same deliveries and trace rows in the simulator and on live nodes."""

from collections import defaultdict
from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carrycast.analysis.spark.trace_metrics import folder_metrics
from carrycast.core.functions import Fault
from carrycast.core.model import NodeId, Processor
from carrycast.lab.loopback.network import until
from carrycast.node.config import NodeConfig
from carrycast.node.node import LiveNode
from carrycast.node.runtime.processing import ProcessorConfig
from carrycast.sim.testing import Net
from carrycast.trace import Kind
from tests.live.conftest import MakeConfig, Run
from tests.live.environments import Phase, Story, StoryResult, Subject, label, run_live, simulate_story, subjects
from tests.live.keyed import Operator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORY = Story(
    ["speed > 30", "road = 'A1'", "speed > 30 or road = 'A1'", "true", "road is null"],
    [
        Phase(
            link=[(0, 1), (1, 2), (2, 3), (3, 4)],
            publish=[(0, {"n": 1, "speed": 31}), (4, {"n": 2, "road": "A1"})],
        ),
        Phase(cut=[(2, 3)], publish=[(0, {"n": 3, "speed": 50, "road": "A1"}), (4, {"n": 4, "speed": 10})]),
        Phase(link=[(1, 3)], publish=[(2, {"n": 5, "road": "B2", "speed": 99})]),
        Phase(cut=[(0, 1), (3, 4)], publish=[(1, {"n": 6, "speed": 31}), (0, {"n": 7, "road": "A1"})]),
        Phase(link=[(0, 4), (3, 4)], publish=[(3, {"n": 8})]),
    ],
)

WALK = Story(
    STORY.filters,
    [
        STORY.phases[0],
        STORY.phases[1],
        Phase(link=[(2, 3)], publish=[(0, {"n": 5, "road": "B2", "speed": 99})]),
        STORY.phases[3],
        Phase(link=[(0, 4), (3, 4)], publish=[(1, {"n": 8})]),
    ],
)
"""No event ever has two neighbors to go to: of a single copy, the one that asks first would decide all that follows."""

OWN = {(attributes["n"], node) for phase in STORY.phases for node, attributes in phase.publish}

# In the simulator too, what these deliver in this story, or say, is another with another seed.
# What these do depends on how far neighbors have come to know each other when an event is published.
LEARNING = {"maxprop", "smf", "state_vector_sync"}
UNCERTAIN = {"asp/repaired", "asp/cached", "asp/large", "asp/rerouted", *LEARNING}
SUBJECTS = [subject for subject in subjects() if label(subject) not in UNCERTAIN]
SINGLE_COPY = {"first_contact"}
ON_TIME = {"asp", "asp/individual"}
"""Whether a message goes along a path or is announced anew depends on how far the path has come by then."""

OF_THE_AIR = {Kind.RETRY, Kind.DROP}
"""Kinds that depend on what the air or the operating system does at a moment."""
LIVE_REASONS = {
    "unacknowledged",
    "link_repeated",
    "link_unexpected_acknowledgement",
    "link_unproven",
    "link_unexpected_response",
    "answered_too_often",
    "digests_too_often",
}
"""Live nodes learn by silence what the simulator knows, and acknowledge and challenge in messages of their own; and who
has to wait for an answer asks again. While events are on their way, hashes differ for a moment and draw digests."""
AIR_REASONS = {"out_of_reach", "not_a_neighbor"}
"""Whether somebody is sent to after it has gone, or speaks before it was found, is a matter of moments."""
OF_KEYS = {"link_unexpected_handshake", "link_unsealed", "link_stranger"}
"""Handshakes that cross as links come and go, and what one end says before the other has finished its own."""


@pytest.mark.parametrize("subject", SUBJECTS, ids=label)
def test_both_worlds_deliver_the_same_and_write_it_down_alike(subject: Subject, config: MakeConfig, run: Run) -> None:
    told = story_of(subject)
    expected = simulate_story(told, subject)
    assert expected.delivered[-1] > expected.delivered[0] > set()

    async def story() -> None:
        seen = await run_live(told, subject, config, expected.delivered)
        assert seen.delivered == expected.delivered
        assert_same_tables(seen, expected)
        assert_same_happenings(seen, expected)
        if label(subject) not in ON_TIME:
            assert filled(seen).keys() == filled(expected).keys()
            assert_same_talk(seen, expected)
            assert_same_losses(seen, expected)

    run(story())


CROSS_SECTION = {"flooding", "epidemic", "tree", "adaptive", "drift", "asp"}
"""The protocols that are always run with keys, too; the slow tests run all of them with keys."""


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(subject, id=label(subject), marks=() if label(subject) in CROSS_SECTION else pytest.mark.slow)
        for subject in SUBJECTS
    ],
)
def test_with_keys_nodes_deliver_and_say_the_same(subject: Subject, config: MakeConfig, run: Run) -> None:
    told = story_of(subject)
    expected = simulate_story(told, subject)
    operator = Operator()

    def keyed(node: NodeId) -> NodeConfig:
        return operator.keyed(config(node))

    async def story() -> None:
        seen = await run_live(told, subject, keyed, expected.delivered)  # type: ignore[arg-type]  # no other arguments
        assert seen.delivered == expected.delivered
        assert_same_tables(seen, expected)
        assert_same_happenings(seen, expected)
        if label(subject) not in ON_TIME:
            assert_same_talk(seen, expected)
            assert_same_losses(seen, expected, OF_KEYS)

    run(story())


def story_of(subject: Subject) -> Story:
    return WALK if label(subject) in SINGLE_COPY else STORY


def assert_same_tables(one: StoryResult, other: StoryResult) -> None:
    """The same columns of the same types, and in each kind of row that both have the same ones filled."""
    [trace] = other.traces
    for each in one.traces:
        assert each.table().schema == trace.table().schema
        assert each.events().schema == trace.events().schema
        assert each.subscriptions().schema == trace.subscriptions().schema
    ours, theirs = filled(one), filled(other)
    assert {key: ours[key] for key in ours if key in theirs} == {key: theirs[key] for key in theirs if key in ours}


def filled(account: StoryResult) -> dict[tuple[object, ...], set[frozenset[str]]]:
    found: dict[tuple[object, ...], set[frozenset[str]]] = defaultdict(set)
    for row in account.rows:
        if row["kind"] not in OF_THE_AIR:
            columns = frozenset(name for name, value in row.items() if value is not None)
            found[row["kind"], row["layer"], row["message"]].add(columns)
    return found


def assert_same_happenings(one: StoryResult, other: StoryResult) -> None:
    """Return publications, subscriptions, deliveries with hops, starts and stops."""

    def happened(account: StoryResult) -> list[tuple[str, ...]]:
        kinds = (Kind.START, Kind.SUBSCRIBE, Kind.PUBLISH, Kind.DELIVER, Kind.STOP)
        columns = ("kind", "node", "layer", "event", "subscription")
        return sorted(tuple(str(row[column]) for column in columns) for row in account.of(*kinds))

    assert happened(one) == happened(other)
    # The story has one way at most between two nodes at any time.
    assert hops(one) == hops(other)


def hops(account: StoryResult) -> dict[tuple[object, object], object]:
    return {(row["event"], row["node"]): row["hops"] for row in account.of(Kind.DELIVER)}


def assert_same_talk(one: StoryResult, other: StoryResult) -> None:
    """The same messages of the same layers and classes are sent and heard by the same nodes."""

    def talk(account: StoryResult) -> set[tuple[object, ...]]:
        columns = ("kind", "layer", "message", "class")
        return {tuple(row[column] for column in columns) for row in account.of(Kind.SEND, Kind.RECEIVE)}

    assert talk(one) == talk(other)


def assert_same_losses(one: StoryResult, other: StoryResult, more: Set[str] = frozenset()) -> None:
    def reasons(account: StoryResult) -> set[object]:
        return {row["reason"] for row in account.of(Kind.DROP)}

    assert reasons(one) - LIVE_REASONS - more <= reasons(other) | AIR_REASONS
    assert reasons(other) - AIR_REASONS <= reasons(one)


FUNCTIONS = """
def raises(event):
    raise KeyError("no such road")

def odd(event):
    return {"n": [1, 2]}

def words(event):
    return "no attributes"

def hoards(event, state):
    return None, bytes(1 << 20) + b"."
"""
FAILING = ("raises", "odd", "words", "hoards")


def test_a_processor_that_fails_is_the_same_row_in_both_worlds(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS)
    entries = [{"id": name, "function": f"{file}:{name}", "nodes": [0], "filter": "true"} for name in FAILING]
    net = Net.line(2, "processor_flooding", {"processors": entries})
    net.publish(0, {"n": 1})
    net.run(2)

    async def story() -> None:
        processors = tuple(ProcessorConfig(Processor(name, "true"), file, name, 10.0) for name in FAILING)
        async with LiveNode(replace(config(0, "processor_flooding"), processors=processors)) as node:
            node.publish({"n": 1})
            await until(lambda: sum(node.drops[reason] for reason in set(Fault)) == len(FAILING), 20.0)
            traces = [StoryResult([], [node.trace]), StoryResult([], [net.simulation.trace])]
        ours, theirs = (
            sorted(account.of(Kind.PROCESSOR_ERROR), key=lambda row: str(row["reason"])) for account in traces
        )
        same = ("node", "layer", "kind", "event", "message", "class", "peer", "interface", "value")
        assert [[row[column] for column in same] for row in ours] == [
            [row[column] for column in same] for row in theirs
        ]
        reasons = [[str(row["reason"]) for row in rows] for rows in (ours, theirs)]
        assert [reason.split(":")[0] for reason in reasons[0]] == [reason.split(":")[0] for reason in reasons[1]]
        assert reasons[0][0] == reasons[1][0] == "processor_raised: raises raised KeyError: 'no such road'"

    run(story())


def test_protocols_differ_in_this_story() -> None:
    flooding, epidemic = (simulate_story(STORY, {"name": name}).delivered[-1] for name in ("flooding", "epidemic"))
    assert epidemic > flooding


JUDGED_ALIKE = ("published", "eligible", "delivered", "delivery_ratio", "hops_mean", "control_transmissions")
"""Metrics that do not depend on how long a phase took. Of frames only where none is repeated or told again."""


def test_one_pipeline_judges_both_worlds(config: MakeConfig, run: Run, spark: "SparkSession", tmp_path: Path) -> None:
    subject = {"name": "flooding"}
    expected = simulate_story(STORY, subject)

    async def story() -> None:
        seen = await run_live(STORY, subject, config, expected.delivered)
        for number, trace in enumerate([*expected.traces, *seen.traces]):
            trace.save(tmp_path / str(number))

    run(story())
    folders = [tmp_path / str(number) for number in range(1 + len(STORY.filters))]
    simulation, nodes = (folder_metrics(spark, chosen).collect() for chosen in (folders[:1], folders[1:]))
    [ours], [theirs] = ([row.asDict() for row in rows] for rows in (simulation, nodes))
    assert {name: theirs[name] for name in JUDGED_ALIKE} == {name: ours[name] for name in JUDGED_ALIKE}
    assert ours["delivered"] == len({pair for pair in expected.delivered[-1] if pair not in OWN})
    for name in ("transmissions", "receptions", "forwards", "data_bytes", "discovery_bytes", "delay_mean_s"):
        assert theirs[name] > 0
