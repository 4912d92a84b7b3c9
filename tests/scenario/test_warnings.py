"""Warnings about scenarios with meaningless results, and no warnings about good scenarios."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from carrycast.analysis.spark.experiment import experiment_names, load_experiment
from carrycast.analysis.spark.reproduction import experiment_warnings
from carrycast.core.settings import read_toml
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.scenario.overrides import resolve_scenario
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.sim.scenario.warnings import find_warnings, merge_warnings

REPOSITORY = Path(__file__).parents[2]
SCENARIOS = [
    path
    for folder in ("examples", "src/carrycast/analysis/experiments", "tests/conformance")
    for path in sorted((REPOSITORY / folder).rglob("*.toml"))
    if "duration_s" in read_toml(path)
]
GOOD: dict[str, object] = {
    "duration_s": 100.0,
    "nodes": 4,
    "area_m": [300.0, 100.0],
    "mobility": {"model": "line", "spacing_m": 50.0},
    "radio": {"model": "disk", "range_m": 60.0},
    "protocol": {"name": "epidemic"},
    "subscribe": [{"filter": "topic = {t}", "draw": {"t": {"integers": [0, 3]}}}],
    "publish": [{"count": 5, "to_s": 50.0, "attributes": {"topic": {"integers": [0, 9]}, "place": "north"}}],
}


EVENTS = {"count": 5, "attributes": {"topic": 1}}


def scenario(**changes: object) -> Scenario:
    return parse_scenario({**GOOD, **changes}, "walk")


def warn(**changes: object) -> list[str]:
    return find_warnings(scenario(**changes))


def warn_subscribe(**entry: object) -> list[str]:
    return warn(subscribe=[entry])


def warn_publish(**entry: object) -> list[str]:
    return warn(publish=[{"count": 5, "attributes": {"topic": 1}, **entry}])


def test_a_good_run_has_none() -> None:
    assert warn() == []


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_scenario_that_comes_with_carrycast_has_any(path: Path) -> None:
    found = find_warnings(resolve_scenario(path))
    # This one is for protocols that run processors; alone it would run the default one.
    idle = path.name == "converters.toml"
    assert [text for text in found if not (idle and text.startswith("processors: "))] == []


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", experiment_names())
def test_no_experiment_that_comes_with_carrycast_has_any(name: str, quick: bool) -> None:
    experiment = load_experiment(name, quick)
    found = [(point.name, find_warnings(point.scenario, moving=False)) for point in experiment.points]
    assert merge_warnings(found) == []


# --- what is published, and what is wanted


@pytest.mark.parametrize(
    ("attributes", "filter"),
    [
        ({"topic": 3}, "topic = 4"),
        ({"topic": 3}, "topic = 3 and place = 'north'"),
        ({"topic": {"integers": [0, 9]}}, "topic > 9"),
        ({"topic": {"uniform": [0.0, 1.0]}}, "topic between 2 and 3"),
        ({"topic": {"choice": ["a", "b"]}}, "topic in ('c', 'd')"),
        ({"topic": "a/b"}, "topic matches 'c/#'"),
        ({}, "topic is not null"),
        ({"topic": 1}, "topic is null"),
        ({"topic": 1}, "false"),
    ],
)
def test_events_that_no_subscription_matches(attributes: Mapping[str, object], filter: str) -> None:
    found = warn(subscribe=[{"filter": filter}], publish=[{"count": 5, "attributes": attributes}])
    assert found == [
        "subscribe[0]: no publication can match its filter, so it gets nothing",
        "publish[0]: no subscription can match its events, so nobody gets them",
    ]


@pytest.mark.parametrize(
    ("attributes", "filter"),
    [
        ({"topic": 3}, "topic = 3"),
        ({"topic": {"integers": [0, 9]}}, "topic > 8"),
        ({"topic": {"integers": [0, 10**9]}}, "topic = 77"),
        ({"topic": {"uniform": [0.0, 1.0]}}, "topic < 0.5"),
        ({"topic": {"choice": ["a", 3, True]}}, "topic = 3"),
        ({"topic": "a/b"}, "topic matches 'a/#'"),
        ({"a strange name": 1}, "true"),
        ({}, "topic is null"),
        ({}, ""),
    ],
)
def test_events_that_some_subscription_matches(attributes: Mapping[str, object], filter: str) -> None:
    assert warn(subscribe=[{"filter": filter}], publish=[{"count": 5, "attributes": attributes}]) == []


def test_of_several_only_those_that_are_in_vain_are_named() -> None:
    found = warn(
        subscribe=[{"filter": "topic = 1"}, {"filter": "topic = 70"}],
        publish=[{"count": 5, "attributes": {"topic": 1}}, {"count": 5, "attributes": {"topic": 2}}],
    )
    assert found == [
        "subscribe[1]: no publication can match its filter, so it gets nothing",
        "publish[1]: no subscription can match its events, so nobody gets them",
    ]


def test_drawn_filters_are_tried_one_by_one_and_very_many_are_trusted() -> None:
    def warn_draw(high: int) -> list[str]:
        return warn_subscribe(filter="topic = {t}", draw={"t": {"integers": [20, high]}})

    assert warn_draw(30)[0].startswith("subscribe[0]: no publication can match")
    assert warn_draw(10**6) == []


def test_very_many_alike_are_told_in_a_few_lines() -> None:
    found = warn(subscribe=[{"filter": "topic = 1"}, *({"filter": f"topic = {number}"} for number in range(50, 90))])
    assert len(found) == 4
    assert found[-1] == "subscribe: 37 more entries like subscribe[1]"


@pytest.mark.parametrize(
    ("attributes", "filter", "said"),
    [
        ({"topic": 3}, "topic = '3'", "compares topic with a string, but publications give a number"),
        ({"topic": "3"}, "topic >= 3", "compares topic with a number, but publications give a string"),
        ({"topic": "3"}, "topic between 3 and 4", "compares topic with a number, but publications give a string"),
        ({"topic": 3}, "topic like '3%'", "compares topic with a string, but publications give a number"),
        ({"topic": 3}, "topic in (true, 'x')", "with a truth value or a string, but publications give a number"),
        ({"on": True}, "on = 1", "compares on with a number, but publications give a truth value"),
        ({"a": 1, "b": "x"}, "a = 1 or b = 3", "compares b with a number, but publications give a string"),
    ],
)
def test_a_string_beside_a_number(attributes: Mapping[str, object], filter: str, said: str) -> None:
    (found,) = warn(subscribe=[{"filter": filter}], publish=[{"count": 5, "attributes": attributes}])
    assert found.startswith("subscribe[0].filter: compares ")
    assert said in found
    assert found.endswith("that is never true")


def test_who_compares_with_both_kinds_or_gets_both_is_not_warned() -> None:
    assert warn(subscribe=[{"filter": "topic = 3 or topic = '3'"}]) == []
    both = [{"count": 1, "attributes": {"topic": 3}}, {"count": 1, "attributes": {"topic": "x"}}]
    assert warn(publish=both, subscribe=[{"filter": "topic = 'x'"}, {"filter": "topic = 3"}]) == []
    drawn = {"filter": "topic = {t}", "draw": {"t": {"choice": [3, "x"]}}}
    assert warn(subscribe=[drawn]) == []


def test_a_drawn_string_beside_a_number() -> None:
    (found,) = warn_subscribe(filter="topic = {t}", draw={"t": {"choice": ["1", "2"]}})
    assert "compares topic with a string" in found


def test_access_policies_that_let_nobody_in() -> None:
    def warn_role(role: str) -> list[str]:
        subscribe = [{"filter": "true", "attributes": {"role": role}}]
        return warn(subscribe=subscribe, publish=[{"count": 5, "access": "role = 'medic'"}])

    assert warn_role("medic") == []
    assert warn_role("driver") == [
        "subscribe[0]: no access policy of the publications that match its filter allows its attributes, so it gets "
        "nothing",
        "publish[0]: its access policy allows no subscription that matches, so nobody gets its events",
    ]


def test_what_applications_and_processors_make_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def f(inputs, state):\n    return inputs, state\n")
    processor = {"id": "p", "function": "f.py:f", "nodes": [0], "filter": "topic = 1"}
    changes: dict[str, object] = {
        "base": str(tmp_path),
        "protocol": {"name": "processor_flooding"},
        "processors": [processor],
        "subscribe": [{"filter": "derived = 'x'"}],
    }
    assert warn(**changes) == []
    # The input of the processor is known: only publications.
    mistyped = warn(**{**changes, "processors": [{**processor, "filter": "topic = 'a'"}]})
    assert [text.split(":")[0] for text in mistyped] == ["processors[0].filter"]


def test_events_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("time_s,topic\n1,3\n2,4\n99,5\n300,6\n")

    def warn_file(filter: str, **entry: object) -> list[str]:
        publish = [{"file": "events.csv", **entry}]
        return warn(publish=publish, subscribe=[{"filter": filter}], base=str(tmp_path))

    late = "publish[0].file: 1 of 4 events in events.csv are due after 100 s, the end"
    assert warn_file("topic = 4") == [late]
    assert warn_file("topic = '4'")[1].startswith("subscribe[0].filter: compares topic with a string")
    assert warn_file("topic = 7")[1] == "subscribe[0]: no publication can match its filter, so it gets nothing"
    assert warn_file("topic = 3", nodes=[])[0] == "publish[0].nodes: selects no node"
    assert (
        "publish[0].file: events in events.csv that name no node are left out, since publish[0].nodes selects none"
        in (warn_file("topic = 3", nodes=[]))
    )


# --- nobody, never


def test_nobody_subscribes() -> None:
    assert warn(subscribe=[]) == ["subscribe: nobody subscribes to anything, so nothing is delivered"]
    nobodies: list[object] = [[], 0, "0%"]
    for nobody in nobodies:
        assert warn(subscribe=[{"nodes": nobody}]) == [
            "subscribe[0].nodes: selects no node",
            "subscribe: nobody subscribes to anything, so nothing is delivered",
        ]
    assert warn(subscribe=[{"nodes": "few"}], roles={"few": 0})[0] == "subscribe[0].nodes: selects no node"


def test_the_only_subscriber_is_the_only_publisher() -> None:
    assert warn(subscribe=[{"nodes": [2]}], publish=[{"count": 3, "nodes": [2]}]) == [
        "subscribe[0]: its only node is the only publisher, and nobody gets what it published itself",
        "publish[0]: its only node is the only subscriber, and nobody gets what it published itself",
    ]
    assert warn(subscribe=[{"nodes": [2]}], publish=[{"count": 3, "nodes": [2, 3]}]) == []


def test_nothing_is_published() -> None:
    assert warn_publish(count=0) == ["publish[0].count: 0, so nothing is published"]
    assert warn_publish(count=None, every_s=10_000.0)[0].startswith(
        "publish[0].every_s: a period of 10000 s is so long"
    )
    assert warn_publish(count=None, every_s=90.0) == []


def test_what_begins_after_the_end() -> None:
    assert warn_subscribe(at_s=100.0)[0] == "subscribe[0].at_s: 100 s is not before the end of the run, 100 s"
    request = [{"at_s": 200.0}]
    assert warn(request=request)[0] == "request[0].at_s: 200 s is not before the end of the run, 100 s"
    assert warn_publish(from_s=100.0)[0] == "publish[0].from_s: 100 s is the end of the run; nothing has time to arrive"


def test_subscriptions_that_stand_at_another_time() -> None:
    before = "subscribe[0]: no publication that matches its filter is made while it stands, so it gets nothing"
    assert before in warn_subscribe(at_s=60.0)
    assert warn_subscribe(at_s=60.0, history=True) == []
    assert warn_subscribe(at_s=40.0) == []
    late = {"count": 5, "from_s": 60.0}
    assert before in warn(subscribe=[{"until_s": 60.0}], publish=[late])
    assert warn(subscribe=[{"until_s": 61.0}], publish=[late]) == []


def test_a_window_without_events() -> None:
    assert warn(measure={"from_s": 60.0}) == [
        "measure: nothing is published between from_s and to_s, so no event counts"
    ]
    assert warn(measure={"from_s": 40.0}) == []
    assert warn(measure={"to_s": 10.0}, publish=[{"count": 1, "from_s": 20.0}])[-1].startswith("measure: ")


def test_nodes_that_never_meet() -> None:
    assert warn(radio={"model": "disk", "range_m": 49.0}) == [
        "radio.range_m: no two nodes ever come within 49 m of each other"
    ]
    assert "nodes: a single node has nobody to send to" in warn(nodes=1)
    wired = warn(radio={"model": "disk", "range_m": 49.0}, wires=[{"between": [[0, 1]]}])
    assert not any(text.startswith("radio") for text in wired)


# --- recordings


def walk(folder: Path, nodes: int = 4, until_s: float = 100.0, away_m: float = 0.0) -> dict[str, object]:
    rows = ["node,time_s,x_m,y_m"]
    for node in range(nodes):
        rows += [f"n{node},{time_s},{50.0 * node + away_m},0" for time_s in (0.0, until_s / 2, until_s)]
    (folder / "walk.csv").write_text("\n".join(rows) + "\n")
    return {"base": str(folder), "mobility": {"model": "csv", "file": "walk.csv"}}


def test_a_run_beyond_the_end_of_its_recording(tmp_path: Path) -> None:
    assert warn(**walk(tmp_path)) == []
    # A last sample a step before the end.
    assert warn(**walk(tmp_path, until_s=99.5)) == []
    found = warn(**walk(tmp_path, until_s=60.0))
    said = "duration_s: the movement in walk.csv ends at 60 s, the run at 100 s; set duration_s = 60 or less"
    assert found == [said]
    # Within another model as well.
    inner = walk(tmp_path, until_s=60.0)
    mixed = {"model": "mixed", "positions": [[0.0, 10.0]], "rest": inner["mobility"]}
    assert warn(**{**inner, "mobility": mixed, "nodes": 5}) == [said]
    excerpt = {"model": "excerpt", "from_s": 20.0, "of": inner["mobility"]}
    assert warn(**{**inner, "mobility": excerpt})[0].startswith("duration_s: the movement in walk.csv ends at 40 s")


def test_a_recording_of_more_nodes(tmp_path: Path) -> None:
    assert warn(**walk(tmp_path, nodes=7)) == [
        "nodes: walk.csv holds 7 nodes, the scenario has 4; the last 3 of the file are left out"
    ]


def test_vehicles_that_are_left_out_on_purpose(tmp_path: Path) -> None:
    steps = "".join(
        f'<timestep time="{time}">'
        + "".join(f'<vehicle id="v{number}" x="{50 * number}" y="1"/>' for number in range(5))
        + "</timestep>"
        for time in (0, 50, 100)
    )
    (tmp_path / "fcd.xml").write_text(f"<fcd-export>{steps}</fcd-export>")
    chosen = {"model": "sumo", "file": "fcd.xml", "first": True}
    assert warn(base=str(tmp_path), mobility=chosen) == []


def test_a_protocol_is_told_of_an_area_that_nodes_leave(tmp_path: Path) -> None:
    changes = {**walk(tmp_path, away_m=5000.0), "area_m": [1000.0, 1000.0]}
    assert warn(**changes) == []
    changes |= {"protocol": {"name": "topic_holder", "variant": "rendezvous_gpsr"}, "router": {"name": "gpsr"}}
    assert [text.split(":")[0] for text in warn(**changes)] == ["area_m"]


def test_publications_of_nodes_that_are_absent(tmp_path: Path) -> None:
    rows = ["node,time_s,x_m,y_m"]
    for node in range(4):
        rows += [f"n{node},{time_s},{50.0 * node},0" for time_s in (80, 90, 100)]
    rows += [f"clock,{time_s},0,0" for time_s in (0, 100)]
    (tmp_path / "late.csv").write_text("\n".join(rows) + "\n")
    changes: dict[str, object] = {"base": str(tmp_path), "mobility": {"model": "csv", "file": "late.csv"}, "nodes": 5}
    publish = {"nodes": [0, 1, 2, 3], "attributes": {"topic": 1}, "count": 8}
    assert warn(**changes, publish=[{**publish, "to_s": 70.0}]) == [
        "publish: 8 of 8 publications are made while their nodes are absent"
    ]
    assert warn(**changes, publish=[{**publish, "from_s": 81.0}]) == []


def test_contacts_that_end_before_the_run_or_know_fewer_nodes(tmp_path: Path) -> None:
    import numpy as np

    plan = ContactPlan.of(3, 50.0, np.array([0]), np.array([1]), np.array([5.0]), np.array([20.0]))
    plan.save(tmp_path / "plan.parquet")
    (tmp_path / "conn.txt").write_text("5 CONN 0 1 up\n20 CONN 0 1 down\n50 CONN 1 2 up\n")
    for file in ("plan.parquet", "conn.txt"):
        found = warn(base=str(tmp_path), mobility=None, contacts=file)
        assert found == [
            f"duration_s: the contacts in {file} end at 50 s, the run at 100 s; set duration_s = 50 or less",
            f"nodes: {file} holds contacts of 3 nodes, the scenario has 4; the last 1 never meet anybody",
        ]
        enough: dict[str, object] = {"duration_s": 50.0, "nodes": 3, "publish": [EVENTS]}
        assert warn(base=str(tmp_path), mobility=None, contacts=file, **enough) == []
    early: dict[str, object] = {"duration_s": 4.0, "nodes": 3, "publish": [EVENTS]}
    found = warn(base=str(tmp_path), mobility=None, contacts="plan.parquet", **early)
    assert found == ["contacts: plan.parquet holds no contact before the end of the run"]


# --- sweeps


def test_points_of_a_sweep_say_it_once() -> None:
    said = [("a", ["x", "y"]), ("b", ["x"]), ("c", ["x", "z"]), ("d", ["x", "z"])]
    assert merge_warnings(said) == ["x", "at a: y", "at 2 of 4 points, as c: z"]
    assert merge_warnings([]) == []


def test_a_point_whose_files_are_gone_does_not_end_the_others(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(
        'title = "gone"\nscenario = "walk.toml"\nruns = 1\nmetrics = ["delivery_ratio"]\n'
        '[[axes]]\nname = "protocol"\nvalues = ["flooding", "epidemic"]\n'
    )
    (tmp_path / "walk.toml").write_text(
        'duration_s = 10.0\nnodes = 2\n[mobility]\nmodel = "csv"\nfile = "gone.csv"\n[[subscribe]]\n'
    )
    assert experiment_warnings(load_experiment(str(tmp_path / "experiment.toml"))) == []


def test_a_recording_that_changes_is_read_again(tmp_path: Path) -> None:
    changes = walk(tmp_path, until_s=60.0)
    assert len(warn(**changes)) == 1
    assert warn(**walk(tmp_path, until_s=100.0)) == []
    assert warn(**{**changes, "duration_s": 120.0})[0].startswith("duration_s: the movement in walk.csv ends at 100 s")
