"""The links that the page draws as cut: a pair stays cut until the last of its cuts has ended."""

from carrycast.analysis.player.cuts import EVERYBODY, find_cuts
from carrycast.sim.scenario.movement import compute_movement
from carrycast.sim.scenario.scenario import parse_scenario

Faults = list[dict[str, object]]


def cuts(faults: Faults) -> list[tuple[int, int, float, float]]:
    table: dict[str, object] = {
        "duration_s": 100.0,
        "nodes": 3,
        "mobility": {"model": "line", "spacing_m": 50.0},
        "radio": {"model": "disk", "range_m": 60.0},
        "protocol": {"name": "flooding"},
        "faults": faults,
    }
    scenario = parse_scenario(table, "three in a row")
    found = find_cuts(scenario, compute_movement(scenario, 1)[0], 1)
    return [(a, b, start / 1e6, end / 1e6) for a, b, start, end in found]


def test_a_short_cut_within_a_long_one_does_not_end_it() -> None:
    long: dict[str, object] = {"kind": "link_cut", "between": [0, 1], "at_s": 1.0, "for_s": 89.0}
    short: dict[str, object] = {"kind": "link_cut", "between": [1, 0], "at_s": 5.0, "for_s": 5.0}
    assert cuts([long, short]) == cuts([short, long]) == [(0, 1, 1.0, 90.0)]


def test_cuts_that_overlap_are_one_and_cuts_apart_are_two() -> None:
    def cut(at_s: float, for_s: float) -> dict[str, object]:
        return {"kind": "link_cut", "between": [0, 1], "at_s": at_s, "for_s": for_s}

    assert cuts([cut(10, 20), cut(20, 30)]) == [(0, 1, 10.0, 50.0)]
    assert cuts([cut(10, 5), cut(20, 5)]) == [(0, 1, 10.0, 15.0), (0, 1, 20.0, 25.0)]


def test_a_node_that_is_cut_off_twice_is_back_when_both_have_ended() -> None:
    def cut_off(at_s: float, for_s: float) -> dict[str, object]:
        return {"kind": "cut_off", "nodes": [2], "at_s": at_s, "for_s": for_s}

    assert cuts([cut_off(10, 50), cut_off(20, 10)]) == [(2, EVERYBODY, 10.0, 60.0)]
