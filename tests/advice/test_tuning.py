"""Fair tuning: the combinations that are tried, the search on training seeds, and both rows in a comparison."""

from pathlib import Path

import pytest

from carrycast.analysis.advice import add_tuned_rivals, parse_objective, tune_experiment, tune_protocols
from carrycast.analysis.advice.advisor import setting_combinations
from carrycast.analysis.advice.tuning import TUNED, TUNING_SEEDS
from carrycast.analysis.spark import LazySession, reproduce_experiments, vary_scenario
from carrycast.core.protocol import find_protocol, protocol_names
from carrycast.core.stacks import select_protocol
from carrycast.errors import UserError
from carrycast.sim.scenario import Scenario, apply_overrides, load_scenario

QUICK = Path(__file__).parents[2] / "examples" / "quick.toml"
MOST_COMBINATIONS = 16
"""More make the tuning of one protocol in one network take longer than the comparison."""


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return apply_overrides(load_scenario(QUICK), {"duration_s": 30.0})


@pytest.mark.parametrize("name", protocol_names())
def test_all_combinations_of_a_search_grid_are_valid_settings(name: str) -> None:
    found = setting_combinations({"name": name})
    assert found[0] == {"name": name}
    assert len(found) <= MOST_COMBINATIONS
    settings = [str(select_protocol(table, "test")[1]) for table in found]
    assert len(set(settings)) == len(settings), "a value of the grid is the default"
    assert set(find_protocol(name).search_grid) <= set(find_protocol(name).settings_type.__struct_fields__)


def test_combinations_begin_with_the_given_settings_and_keep_those_outside_the_grid() -> None:
    found = setting_combinations({"name": "gossip", "p": 0.3, "seen_s": 20.0})
    assert found[0] == {"name": "gossip", "p": 0.3, "seen_s": 20.0}
    assert {table["p"] for table in found} == {0.3, 0.5, 0.9}
    assert all(table["seen_s"] == 20.0 for table in found)


def test_the_settings_of_a_variant_are_not_tuned() -> None:
    found = setting_combinations({"name": "prophet", "variant": "v2"})
    assert {"threshold", "forwarding"}.isdisjoint(key for table in found for key in table)
    assert len(found) == 2


def test_the_best_combination_is_found_on_training_seeds_and_kept(scenario: Scenario, tmp_path: Path) -> None:
    goal = parse_objective("least transmissions")
    [tuned] = tune_protocols(scenario, [{"name": "gossip"}], tmp_path, 2, goal)
    assert tuned.is_changed
    assert tuned.best.protocol["p"] == 0.3, "the fewest frames"
    assert tuned.tried == 12
    assert tuned.search is not None
    seeds = {seed for rows in tuned.search.found.values() for seed in rows}
    assert seeds == {TUNING_SEEDS, TUNING_SEEDS + 1}
    said: list[str] = []
    [again] = tune_protocols(scenario, [{"name": "gossip"}], tmp_path, 2, goal, say=said.append)
    assert again.best == tuned.best
    assert "best of 12 combinations" in tuned.sentence


def test_a_protocol_without_a_grid_has_nothing_to_tune(scenario: Scenario, tmp_path: Path) -> None:
    [tuned] = tune_protocols(scenario, [{"name": "drift"}], tmp_path / "none", 2)
    assert not tuned.is_changed
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="--tune 0"):
        tune_protocols(scenario, [{"name": "drift"}], tmp_path, 0)


def test_a_comparison_has_a_tuned_row_below_each_rival_and_none_for_the_reference(
    scenario: Scenario, tmp_path: Path
) -> None:
    rows = add_tuned_rivals(scenario, [{"name": "gossip"}, {"name": "spray_and_wait"}], tmp_path, 2)
    assert rows[:2] == [{"name": "gossip"}, {"name": "spray_and_wait"}]
    assert all(row["name"] == "spray_and_wait" for row in rows[1:])


def test_an_experiment_gets_tuned_points_beside_the_given_ones(tmp_path: Path) -> None:
    experiment = vary_scenario(QUICK, ["protocol=drift,gossip:p=0.05"], ["duration_s=30"], 2)
    tuned = tune_experiment(experiment, tmp_path / "tuning", 2)
    labels = ["drift", "gossip p=0.05", f"gossip p=0.05{TUNED}"]
    assert tuned.labels("protocol") == labels
    assert [point.labels["protocol"] for point in tuned.points] == labels
    found = reproduce_experiments([tuned], tmp_path, LazySession(), quiet=True)
    assert (found.runs, found.failed) == (6, 0)
    with pytest.raises(UserError, match="has no axis 'protocol'"):
        tune_experiment(vary_scenario(QUICK, ["radio.range_m=50,100"], [], 2), tmp_path, 2)
