"""How the nodes of a scenario move, and who meets whom: the same for every protocol of a seed."""

import functools
from pathlib import Path

import msgspec
import numpy as np

from carrycast.core.streams import array_stream
from carrycast.errors import UserError
from carrycast.sim.contacts.exact import contacts
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.mobility.trajectory import Trajectories
from carrycast.sim.scenario.event_files import read_events
from carrycast.sim.scenario.inputs import input_digest, input_files
from carrycast.sim.scenario.scenario import Scenario


def movement(scenario: Scenario, seed: int, range_m: float | None = None) -> tuple[ContactPlan, Trajectories | None]:
    """Who comes within a distance of whom when, by default the radio's range, and how everybody moves.

    The last few are kept, so that protocols compared on one seed share the work; what their files hold counts.
    """
    relevant = (scenario.mobility, scenario.contacts, scenario.base, scenario.nodes, scenario.area_m)
    # MessagePack, since JSON has no infinite numbers.
    key = msgspec.msgpack.encode((relevant, scenario.duration_s, seed, input_digest(scenario)), order="deterministic")
    carried = _Unhashed(scenario)
    return _plan(key, carried, seed, scenario.radio_model().range_m if range_m is None else range_m), _moving(
        key, carried, seed
    )


class _Unhashed:
    """Carries a scenario past the cache, whose key already says all that matters of it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unhashed)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=4)
def _moving(key: bytes, carried: _Unhashed, seed: int) -> Trajectories | None:
    scenario = carried.scenario
    model = scenario.mobility_model()
    if model is None:
        return None
    return model.trajectories(scenario.nodes, scenario.area, scenario.duration_s, array_stream(seed, "mobility"))


@functools.lru_cache(maxsize=8)
def _plan(key: bytes, carried: _Unhashed, seed: int, range_m: float) -> ContactPlan:
    scenario = carried.scenario
    moving = _moving(key, carried, seed)
    if moving is None:
        return _replayed(scenario)
    return contacts(moving, range_m, scenario.duration_s)


def check_files(scenario: Scenario) -> None:
    """Read the movement, map, contacts or events that a scenario takes from files; a UserError names what is wrong."""
    for publish in scenario.resolved().publish:
        if publish.file is not None:
            read_events(Path(publish.file), scenario.nodes)
    model = scenario.mobility_model()
    if input_files(scenario) or (model is not None and model.on_roads()):
        movement(scenario, seed=1)
        # A model that only plays a recording does not read the map itself.
        if model is not None:
            model.road_map()


def _replayed(scenario: Scenario) -> ContactPlan:
    contacts_file = scenario.resolved().contacts
    if contacts_file is None:
        # Only wires: nobody ever meets by radio.
        nobody, never = np.array([], dtype=np.int64), np.array([], dtype=np.float64)
        return ContactPlan.of(scenario.nodes, scenario.duration_s, nobody, nobody, never, never)
    path = Path(contacts_file)
    if path.suffix == ".parquet":
        plan = ContactPlan.load(path)
    else:
        plan = ContactPlan.from_one_events(path, scenario.nodes, scenario.duration_s)
    if plan.nodes > scenario.nodes:
        raise UserError(f"{path}: has {plan.nodes} nodes, the scenario only {scenario.nodes}")
    return plan
