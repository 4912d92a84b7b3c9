"""Movement and contacts of the nodes of a scenario. They depend on the seed and not on the protocol."""

import functools
import re
from pathlib import Path

import msgspec
import numpy as np

from carrycast.core.streams import array_stream, check_seed
from carrycast.errors import UserError
from carrycast.sim.contacts import ContactPlan, compute_contacts
from carrycast.sim.mobility import (
    COLUMNS,
    Area,
    CsvTable,
    MovementFormat,
    Ns2,
    One,
    Sumo,
    Trajectories,
    decompressed_file,
)
from carrycast.sim.scenario.event_files import read_events
from carrycast.sim.scenario.inputs import input_digest, input_files
from carrycast.sim.scenario.scenario import Scenario, load_scenario


def compute_movement(
    scenario: Scenario, seed: int, range_m: float | None = None
) -> tuple[ContactPlan, Trajectories | None]:
    """Compute the contacts within `range_m`, by default the range of the radio, and the trajectories.

    The last few results are cached, so that protocols compared on one seed share them. The content of input files is
    part of the key.
    """
    relevant = (scenario.mobility, scenario.contacts, scenario.base, scenario.nodes, scenario.area_m)
    # MessagePack, since JSON has no infinite numbers.
    key = msgspec.msgpack.encode((relevant, scenario.duration_s, seed, input_digest(scenario)), order="deterministic")
    carried = _Unhashed(scenario)
    return _compute_plan(
        key, carried, seed, scenario.radio_model().range_m if range_m is None else range_m
    ), _compute_trajectories(key, carried, seed)


class _Unhashed:
    """Hides a scenario from the cache key, which already covers everything that matters of it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unhashed)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=4)
def _compute_trajectories(key: bytes, carried: _Unhashed, seed: int) -> Trajectories | None:
    scenario = carried.scenario
    model = scenario.mobility_model()
    if model is None:
        return None
    return model.trajectories(scenario.nodes, scenario.area, scenario.duration_s, array_stream(seed, "mobility"))


@functools.lru_cache(maxsize=8)
def _compute_plan(key: bytes, carried: _Unhashed, seed: int, range_m: float) -> ContactPlan:
    scenario = carried.scenario
    moving = _compute_trajectories(key, carried, seed)
    if moving is None:
        return _load_contacts(scenario)
    return compute_contacts(moving, range_m, scenario.duration_s)


def check_files(scenario: Scenario) -> None:
    """Read all input files of a scenario: movement, map, contacts, events. A UserError names what is wrong."""
    for publish in scenario.resolve_files().publish:
        if publish.file is not None:
            read_events(Path(publish.file), scenario.nodes)
    scenario.radio_model().check_files()
    model = scenario.mobility_model()
    if input_files(scenario) or (model is not None and model.on_roads()):
        compute_movement(scenario, seed=1)
        # Computing the movement of a recording does not read its map.
        if model is not None:
            model.road_map()


def _load_contacts(scenario: Scenario) -> ContactPlan:
    contacts_file = scenario.resolve_files().contacts
    if contacts_file is None:
        # The scenario has only wires, so there are no radio contacts.
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


MOST = 1e9
"""The largest range in meters and duration in seconds, as in scenarios."""
_SNIFFED_BYTES = 1 << 16


def read_contact_plan(path: Path, range_m: float | None, duration_s: float | None, seed: int) -> ContactPlan:
    """Return the contacts of a contact file, a movement file or a scenario. A movement file needs `range_m`."""
    check_extent(range_m, duration_s)
    check_seed(seed)
    if path.suffix == ".toml":
        return _compute_scenario_contacts(path, range_m, duration_s, seed)
    start = "" if path.suffix == ".parquet" else _read_start(path)
    if path.suffix == ".parquet" or start.startswith("PAR1"):
        if range_m is not None or duration_s is not None:
            raise UserError(f"{path}: holds contacts, which have neither --range nor --duration of their own")
        return ContactPlan.load(path)
    if start.lstrip("\ufeff \t\r\n").startswith("<"):
        return _compute_file_contacts(Sumo(file=str(path)), range_m, duration_s, seed)
    if not _is_table(path, start) and re.search(r"^\s*\S+\s+(CONN|C|S|DE|A|DR|R)\s", start, re.MULTILINE):
        return ContactPlan.from_one_events(path, duration_s=duration_s)
    return _compute_file_contacts(_detect_format(path, start), range_m, duration_s, seed)


def _detect_format(path: Path, start: str) -> MovementFormat:
    """Detect the movement format of a text file by its first lines."""
    first = _find_first_line(start)
    if _is_table(path, start):
        return CsvTable(file=str(path))
    if "$node_" in start or "$god_" in start:
        return Ns2(file=str(path))
    if re.match(r"[-+.\d]", first):
        return One(file=str(path))
    what = "holds nothing that is known here" if first else "empty"
    raise UserError(
        f"{path}: {what}; expected movement (CSV, ns-2, the ONE, SUMO), connections of the ONE, or a scenario (.toml)"
    )


def _find_first_line(start: str) -> str:
    return next((line for line in map(str.strip, start.splitlines()) if line and not line.startswith("#")), "")


def _is_table(path: Path, start: str) -> bool:
    return path.suffix.lower() == ".csv" or COLUMNS[0] in _find_first_line(start)


def check_extent(range_m: float | None, duration_s: float | None) -> None:
    """Reject a range or a duration that is out of bounds."""
    if range_m is not None and not 0 < range_m <= MOST:
        raise UserError(f"--range: a distance above 0, and at most {MOST:g} m, not {range_m}")
    if duration_s is not None and not 0 < duration_s <= MOST:
        raise UserError(f"--duration: a time above 0, and at most {MOST:g} s, not {duration_s}")


def _compute_file_contacts(
    player: MovementFormat, range_m: float | None, duration_s: float | None, seed: int
) -> ContactPlan:
    path = player.file
    nodes, lasts_s = player.extent()
    if range_m is None:
        raise UserError(f"{path}: holds movement; say within what distance nodes meet, as in --range 250")
    wanted_s = duration_s or lasts_s
    if wanted_s <= 0:
        raise UserError(f"{path}: says nothing of how long it lasts; give --duration")
    moving = player.trajectories(nodes, Area(1.0, 1.0), wanted_s, array_stream(seed, "mobility"))
    return compute_contacts(moving, range_m, wanted_s)


def _compute_scenario_contacts(path: Path, range_m: float | None, duration_s: float | None, seed: int) -> ContactPlan:
    scenario = load_scenario(path)
    plan, moving = compute_movement(scenario, seed)
    if range_m is None and duration_s is None:
        return plan
    if moving is None:
        raise UserError(f"{path}: replays contacts, which have neither --range nor --duration of their own")
    wanted_s = duration_s or scenario.duration_s
    if wanted_s > scenario.duration_s:
        raise UserError(f"--duration {wanted_s:g}: {path} moves its nodes for {scenario.duration_s:g} s only")
    return compute_contacts(moving, scenario.radio_model().range_m if range_m is None else range_m, wanted_s)


def _read_start(path: Path) -> str:
    with decompressed_file(path) as file:
        return file.read(_SNIFFED_BYTES).decode("utf-8", errors="replace").removeprefix("\ufeff")
