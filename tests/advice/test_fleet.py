"""The fleet, its parts and candidates, the delivery bound, and the node configurations."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carrycast.analysis.advice.advisor import Candidate, apply_candidate, find_candidates
from carrycast.analysis.advice.bound import delivery_bound
from carrycast.analysis.advice.deploy import name_nodes, write_node_configurations
from carrycast.analysis.advice.fleet import read_fleet, split_fleet
from carrycast.analysis.advice.page import pareto_front
from carrycast.core.protocol.registry import protocol_names
from carrycast.errors import UserError
from carrycast.node.config import load_config
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.movement import compute_movement, read_contact_plan
from carrycast.sim.scenario.overrides import apply_overrides
from tests.cli.console import EXAMPLES

BUSES = EXAMPLES / "fleet" / "buses.ns_movements"
WORKLOAD = EXAMPLES / "fleet" / "workload.toml"


def test_recorded_movement_is_cut_in_time_and_nothing_is_lost_between(tmp_path: Path) -> None:
    fleet = read_fleet(BUSES, WORKLOAD, 150.0)
    assert fleet.nodes == 12
    parts = split_fleet(fleet, 0.6, tmp_path)
    assert parts.training.duration_s + parts.held_out.duration_s == pytest.approx(fleet.duration_s)
    whole, _ = compute_movement(fleet, 1)
    first, _ = compute_movement(parts.training, 1)
    rest, _ = compute_movement(parts.held_out, 1)
    together = float(first.durations_s().sum() + rest.durations_s().sum())
    assert together == pytest.approx(float(whole.durations_s().sum()), abs=1e-3)
    assert "are held out" in parts.how


def test_recorded_contacts_are_cut_in_time_too(tmp_path: Path) -> None:
    plan = read_contact_plan(BUSES, 150.0, None, 1)
    plan.save(tmp_path / "contacts.parquet")
    fleet = read_fleet(tmp_path / "contacts.parquet", WORKLOAD)
    parts = split_fleet(fleet, 0.5, tmp_path / "parts")
    first, rest = (ContactPlan.load(Path(str(part.contacts))) for part in (parts.training, parts.held_out))
    together = float(first.durations_s().sum() + rest.durations_s().sum())
    assert together == pytest.approx(float(plan.durations_s().sum()), abs=1e-3)


def test_drawn_movement_is_not_cut_since_each_seed_is_a_day(tmp_path: Path) -> None:
    fleet = read_fleet(EXAMPLES / "ferries.toml", None)
    parts = split_fleet(fleet, 0.6, tmp_path)
    assert parts.training == parts.held_out == fleet
    assert fleet.roles == {"everybody": "all"}
    assert "other seeds are held out" in parts.how


def read_error(*arguments: object) -> str:
    with pytest.raises(UserError) as error:
        read_fleet(*arguments)  # type: ignore[arg-type]  # that is what is tried
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_no_fleet_is_refused_with_what_is_one(tmp_path: Path) -> None:
    assert "there is no such file" in read_error(tmp_path / "nothing", WORKLOAD)
    (tmp_path / "words.txt").write_text("these are only words\n")
    assert "is no fleet; give a scenario (.toml), a contact plan (.parquet), movement (" in read_error(
        tmp_path / "words.txt", WORKLOAD, 100.0
    )
    # Three columns of numbers may be something else than BonnMotion. A GPS log must be ingested first. The error of a
    # cut file comes from the reader of its format.
    (tmp_path / "still.txt").write_text("0 10 20\n0 30 40\n")
    assert "may be bonnmotion or something else: make a folder of it with `carrycast ingest`" in read_error(
        tmp_path / "still.txt", WORKLOAD, 100.0
    )
    (tmp_path / "gps.csv").write_text("id,time,lon,lat\n1,0,8.5,47.4\n")
    assert "there is no column time_s or node" in read_error(tmp_path / "gps.csv", WORKLOAD, 100.0)
    (tmp_path / "a.gpx").write_text("<gpx></gpx>")
    assert "is GPS tracks (GPX, XML): make a folder of it" in read_error(tmp_path / "a.gpx", WORKLOAD, 100.0)
    (tmp_path / "cut.ns").write_text('$node_(0) set X_ 5\n$node_(0) set Y_ 5\n$ns_ at 1 "$node_(0) setd')
    assert "cut.ns:3: expected" in read_error(tmp_path / "cut.ns", WORKLOAD, 100.0)
    assert "say within what distance nodes meet" in read_error(BUSES, WORKLOAD)
    assert "give --workload FILE" in read_error(BUSES, None, 150.0)
    assert "is a scenario, which says its own range" in read_error(EXAMPLES / "ferries.toml", None, 100.0)
    (tmp_path / "odd.toml").write_text("nodes = 3\n")
    assert "a workload has roles, subscribe, publish" in read_error(BUSES, tmp_path / "odd.toml", 150.0)
    with pytest.raises(UserError, match=r"between 0\.1 and 0\.9"):
        split_fleet(read_fleet(BUSES, WORKLOAD, 150.0), 1.0, tmp_path)


def test_every_protocol_is_a_candidate_or_said_not_to_be() -> None:
    fleet = read_fleet(BUSES, WORKLOAD, 150.0)
    candidates, left_out = find_candidates(fleet)
    named = {str(one.protocol["name"]) for one in candidates} | {one.label.split()[0] for one in left_out}
    assert {name.split("/")[0] for name in named} == set(protocol_names())
    assert {"direct", "first_contact", "spray_and_wait", "prophet"} <= {str(one.protocol["name"]) for one in candidates}
    assert len(candidates) == len({one.label for one in candidates}) > 20
    assert all("\n" not in one.reason for one in left_out)
    labels = {one.label for one in candidates}
    assert {"gossip p=0.3", "spray_and_wait copies=32", "tree/recovering role=everybody"} <= labels


def test_named_candidates_must_run() -> None:
    fleet = read_fleet(BUSES, WORKLOAD, 150.0)
    assert [one.label for one in find_candidates(fleet, "gossip:p=0.3,epidemic")[0]] == ["gossip p=0.3", "epidemic"]
    with pytest.raises(UserError, match="epidemc"):
        find_candidates(fleet, "epidemc")


def test_no_protocol_does_better_than_the_bound_and_a_perfect_epidemic_reaches_it() -> None:
    fleet = read_fleet(BUSES, WORKLOAD, 150.0)
    bound = delivery_bound(fleet, [1, 2])
    perfect = apply_overrides(fleet, {"protocol": "epidemic", "discovery": {"mode": "oracle"}, "radio.delay_s": 1e-6})
    delivered = eligible = 0
    for seed in (1, 2):
        metrics = run(perfect, seed).metrics
        delivered += int(metrics["delivered"] or 0)
        eligible += int(metrics["eligible"] or 0)
    assert bound.delivery is not None
    assert bound.delivery == pytest.approx(delivered / eligible, abs=0.005)
    assert bound.delivery >= delivered / eligible
    assert delivery_bound(apply_overrides(fleet, {"subscribe": [{"filter": "kind = 'none'"}]}), [1]).delivery is None


def test_nodes_get_configurations_that_load(tmp_path: Path) -> None:
    fleet = read_fleet(BUSES, WORKLOAD, 150.0)
    for label in ("spray_and_wait:copies=4", "drift", "semi_probabilistic/pure", "tree:role=everybody"):
        [candidate], _ = find_candidates(fleet, label)
        assert write_node_configurations(fleet, candidate, tmp_path / "nodes") == 12
        config = load_config(tmp_path / "nodes" / "node-07.toml")
        assert config.plan.protocol.name == candidate.protocol["name"]
        expected = apply_candidate(fleet, candidate).make_stack_plan()
        assert msgspec.to_builtins(config.plan.settings) == msgspec.to_builtins(expected.settings)


@pytest.mark.parametrize(
    ("vehicles", "nodes"),
    [
        (["Bus 7", "tram/12", "Z\u00fcri"], ["Bus-7", "tram-12", "Z-ri"]),
        (["Bus 7", "bus-7", "..."], ["Bus-7-0", "bus-7-1", "node-2"]),
        (["a b", "a-b", "a-b-0"], ["node-0", "node-1", "node-2"]),
    ],
)
def test_nodes_of_a_fleet_are_called_like_its_vehicles(tmp_path: Path, vehicles: list[str], nodes: list[str]) -> None:
    (tmp_path / "nodes").mkdir()
    table = pa.table({"number": [2, 0, 1], "node": [vehicles[2], vehicles[0], vehicles[1]]})
    pq.write_table(table, tmp_path / "nodes" / "part-0.parquet")
    movement = {"model": "fleet", "folder": str(tmp_path)}
    fleet = msgspec.structs.replace(read_fleet(BUSES, WORKLOAD, 150.0), nodes=3, mobility=movement)
    assert name_nodes(fleet) == nodes


def test_a_candidate_keeps_its_settings() -> None:
    fleet = read_fleet(BUSES, WORKLOAD, 150.0)
    candidate = Candidate("x", {"name": "gossip", "p": 0.25})
    assert apply_candidate(fleet, candidate).protocol == {"name": "gossip", "p": 0.25}


def test_who_is_beaten_in_both_is_not_on_the_front() -> None:
    assert pareto_front([(1.0, 0.5), (2.0, 0.9), (3.0, 0.8), (1.0, 0.4)], least_x=True, most_y=True) == [0, 1]
    assert pareto_front([(1.0, 5.0), (2.0, 1.0)], least_x=False, most_y=False) == [1]
