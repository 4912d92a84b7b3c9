"""The scenario on which all systems are compared: each runs on it, with one movement and one workload for all."""

import re
from pathlib import Path

import pytest

from carrycast.core.protocol.registry import protocol_names
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.overrides import parse_protocols, resolve_scenario

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "examples" / "head-to-head.toml"
SHORT = {"duration_s": 30.0, "measure.to_s": 28.0, **{f"publish.{place}.to_s": 28.0 for place in range(5)}}


def compared() -> list[str]:
    """What the page's command compares."""
    (named,) = re.findall(r"--protocols \\\n\s*(\S+)", (ROOT / "docs" / "results-head-to-head.md").read_text())
    return str(named).split(",")


def test_every_system_and_every_baseline_is_compared() -> None:
    named = {str(protocol["name"]) for protocol in parse_protocols(",".join(compared()))}
    # Flooding with processors, where there are none, is flooding; drift is young, and compared on its own page. The
    # routers known from the ONE and the later baselines are compared by `carrycast advise`; flows and areas have other
    # subscribers.
    known = {"direct", "first_contact", "spray_and_wait", "prophet"}
    later = {"managed_flooding", "smf", "plumtree", "maxprop", "state_vector_sync"}
    other = {"unicast", "area_topics"}
    assert named == set(protocol_names()) - {"processor_flooding", "drift"} - known - later - other


@pytest.mark.parametrize("protocol", compared())
def test_each_runs_on_the_same_events_and_delivers_some(protocol: str) -> None:
    metrics = run(resolve_scenario(SCENARIO, protocol, SHORT), 1).metrics
    flooded = run(resolve_scenario(SCENARIO, "flooding", SHORT), 1).metrics
    assert (metrics["published"], metrics["eligible"]) == (flooded["published"], flooded["eligible"])
    assert metrics["delivered"]
