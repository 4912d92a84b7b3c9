"""The contended radio and the routers of the native engine: the same results as the Python engine to the last bit."""

import tomllib
from pathlib import Path

import pytest

from benchmarks.differential import compare_engines
from carrycast.core.protocol import Router
from carrycast.routers.gpsr import ROUTER as GPSR
from carrycast.sim.engine import NATIVE, run
from carrycast.sim.engine.native.routers import use_native_router
from carrycast.sim.scenario import Scenario, apply_overrides, parse_scenario
from carrycast.trace import Level
from tests.simulation.test_engines import needs_core

ROOT = Path(__file__).parent.parent.parent
CITY = ROOT / "src/carrycast/analysis/experiments/topic_holders/city.toml"

RADIOS: dict[str, dict[str, object]] = {
    "802.11b": {},
    "ns2": {"preset": "ns2"},
    "hidden stations": {"cs_range_m": 155, "interference_range_m": 150},
    "RTS above 300 bytes": {"rts_threshold_bytes": 300},
    "capture": {"capture_db": 6, "path_exponent": 2.5},
    "short queue": {"queue": 1, "basic_rate_bps": 1e5},
    "routing first": {"queue": 2, "routing_first": True, "data_rate_bps": 2e5},
    "no window": {"cw_min": 0, "cw_max": 0, "eifs": False},
    "busy slots count": {"busy_slot_counts": True, "timeout_us": 0},
    "few retries": {"retry_limit": 1, "long_retry_limit": 1, "rts_threshold_bytes": 0},
    "sensed late": {"slot_us": 50, "sense_us": 50},
}


def make_busy(radio: dict[str, object], **changes: object) -> Scenario:
    """Many nodes that move and send much: backoffs, collisions and retries happen all the time."""
    table: dict[str, object] = {
        "name": "busy",
        "duration_s": 20,
        "nodes": 25,
        "area_m": [400, 400],
        "mobility": {"model": "random_waypoint", "speed_min_mps": 1, "speed_max_mps": 20},
        "radio": {"model": "csma", "range_m": 150, **radio},
        "discovery": {"mode": "beacon", "period_s": 0.5},
        "protocol": {"name": "epidemic"},
        "subscribe": [{"filter": "a > 0"}],
        "publish": [{"count": 60, "payload_bytes": 400, "attributes": {"a": 1}}],
    }
    return parse_scenario(table | changes, "busy")


@needs_core
@pytest.mark.parametrize("name", RADIOS)
def test_a_busy_medium_has_the_same_results_with_both_engines(name: str) -> None:
    compared = compare_engines(name, make_busy(RADIOS[name]), 1, Level.FULL)
    assert compared.verdict == "same", compared.text


@needs_core
def test_a_busy_medium_is_busy() -> None:
    metrics = run(make_busy(RADIOS["ns2"]), 1, engine=NATIVE).metrics
    transmissions = metrics["transmissions"]
    assert isinstance(transmissions, int)
    assert transmissions > 1000


@needs_core
def test_nodes_that_crash_or_are_cut_off_lose_their_queues_alike() -> None:
    faults = [
        {"kind": "crash", "nodes": "50%", "every_s": 3, "down_s": 1},
        {"kind": "cut_off", "nodes": "30%", "every_s": 5, "for_s": 2},
        {"kind": "link_cuts", "every_s": 1, "for_s": 2},
    ]
    compared = compare_engines("faults", make_busy({"preset": "ns2"}, faults=faults), 1, Level.FULL)
    assert compared.verdict == "same", compared.text


def make_city(variant: str, router: str, **settings: object) -> Scenario:
    """The first seconds of the city of experiment topic-holders."""
    table = tomllib.loads(CITY.read_text("utf-8"))
    table["duration_s"], table["measure"] = 15.0, {"from_s": 1.0, "to_s": 14.0}
    table["publish"] = [publisher | {"from_s": 2.0, "every_s": 3.0, "to_s": 14.0} for publisher in table["publish"]]
    name, _, of = router.partition("/")
    table["protocol"] = {"name": "topic_holder", "variant": variant}
    table["router"] = {"name": name, **({"variant": of} if of else {}), **settings}
    return parse_scenario(table, "city")


@needs_core
@pytest.mark.parametrize(
    ("variant", "router", "settings"),
    [
        ("broker_gpsr_map", "gpsr/ns2", {}),
        ("broker_gpsr", "gpsr/overhearing", {}),
        ("rendezvous_gpsr_map", "gpsr/rng", {}),
        ("rendezvous_gpsr", "gpsr/predictive", {}),
        ("broker_gpsr_map", "gpsr", {"piggyback": False, "direct": False, "beacon_skips": 2, "max_hops": 6}),
        ("broker_gpsr_map", "gpsr", {"recovery": "none", "max_neighbors": 3, "max_seen": 10, "max_range_m": 180}),
        ("broker_aodv", "aodv/ns2", {}),
        ("rendezvous_aodv", "aodv", {}),
    ],
)
def test_routers_have_the_same_results_with_both_engines(
    variant: str, router: str, settings: dict[str, object]
) -> None:
    compared = compare_engines(router, make_city(variant, router, **settings), 1, Level.FULL)
    assert compared.verdict == "same", compared.text


@needs_core
@pytest.mark.parametrize("router", ["aodv", "gpsr"])
def test_nodes_with_wrong_clocks_route_alike_with_both_engines(router: str) -> None:
    skewed = [{"kind": "clock_skew", "offset_s": 100.0, "drift": 0.001}]
    scenario = make_city("rendezvous_aodv" if router == "aodv" else "rendezvous_gpsr", router)
    scenario = apply_overrides(scenario, {"faults": skewed, "duration_s": 20.0, "measure.to_s": 20.0})
    compared = compare_engines(router, scenario, 1, Level.METRICS)
    assert compared.verdict == "same", compared.text


@needs_core
def test_a_router_that_inherits_from_a_native_one_stays_in_python() -> None:
    class Changed(GPSR):
        pass

    plan = make_city("broker_gpsr_map", "gpsr/ns2").make_stack_plan()
    plan.router = Changed
    use_native_router(plan)
    assert plan.router is Changed
    plan.router = GPSR
    use_native_router(plan)
    assert plan.router is not GPSR
    assert issubclass(plan.router, Router)
