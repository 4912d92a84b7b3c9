"""Reads a fleet and its workload as a scenario, and splits it into a training part and a held-out part."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from carrycast.analysis.fleets import FORMATS, PLAN_FILE, SCENARIO_FILE, format_of
from carrycast.core.settings import read_toml
from carrycast.errors import UserError
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.mobility import FACTS_FILE, FleetFacts, FleetMovement, MovementFormat, movement_models
from carrycast.sim.scenario import Scenario, load_scenario, parse_scenario

WORKLOAD = ("roles", "subscribe", "publish", "faults", "measure")
"""The tables of a scenario that a workload file may have."""
EVERYBODY = "everybody"
"""A role that all nodes have, for protocols that need nodes in a role."""
_INGEST = "make a folder of it with `carrycast ingest`, and give that"
HELD_OUT_SEEDS = 1_000_001
"""The first seed of the held-out part, far from the training seeds."""


@dataclass(frozen=True)
class FleetParts:
    """The training part and the held-out part of a fleet."""

    training: Scenario
    held_out: Scenario
    how: str
    """A description of the split."""


def recorded_file(path: Path, workload: Path | None, range_m: float | None) -> Path | None:
    """The scenario in a folder of `carrycast ingest`, if the user gives no workload or no range; None without one."""
    beside = path / SCENARIO_FILE
    needed = workload is None or (range_m is None and (path / FACTS_FILE).exists())
    return beside if needed and beside.is_file() else None


def read_fleet(
    path: Path, workload: Path | None, range_m: float | None = None, duration_s: float | None = None
) -> Scenario:
    """Make a scenario from a scenario file, recorded movement or contacts, and a workload.

    For a folder of `carrycast ingest`, range and workload default to those of its scenario.
    """
    beside = recorded_file(path, workload, range_m)
    given = None if beside is None else load_scenario(beside)
    if range_m is None and given is not None and given.contacts is None:
        range_m = given.radio_model().range_m
    if path.suffix == ".toml":
        if range_m is not None or duration_s is not None:
            raise UserError(f"{path}: is a scenario, which says its own range and duration; leave out the option")
        table: dict[str, object] = {**msgspec.to_builtins(load_scenario(path))}
    else:
        table = recording_tables(path, range_m, duration_s)
        if given is not None and workload is None:
            said_there = msgspec.to_builtins(given)
            table |= {key: said_there[key] for key in WORKLOAD if key in said_there}
    if workload is not None:
        given_workload = read_toml(workload)
        for key in given_workload:
            if key not in WORKLOAD:
                raise UserError(f"{workload}: {key}: a workload has {', '.join(WORKLOAD)}; the rest is the fleet's")
        table |= {"roles": {}, "subscribe": [], "publish": [], "measure": {}, **given_workload}
        if _has_files(given_workload):
            table["publish"] = _absolute_files(given_workload.get("publish", []), workload.parent)
    if not table.get("publish") or not table.get("subscribe"):
        where = path if workload is None else workload
        raise UserError(f"{where}: has nobody who publishes or nobody who subscribes; give --workload FILE with both")
    # The protocol and router of the fleet's own scenario are ignored.
    said_roles = table.get("roles")
    roles = {EVERYBODY: "all", **(said_roles if isinstance(said_roles, dict) else {})}
    return parse_scenario({**table, "roles": roles, "protocol": {}, "router": None}, str(workload or path))


def recording_tables(path: Path, range_m: float | None, duration_s: float | None) -> dict[str, object]:
    """The tables of a scenario that plays a file or folder of recorded movement or contacts."""
    if range_m is not None and not 0 < range_m <= 1e7:
        raise UserError(f"--range {range_m:g}: a distance above 0 and at most 10,000 km")
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
    base = {"name": path.stem or "fleet", "base": str(path.resolve().parent)}
    if path.suffix == ".parquet" and path.is_file():
        plan = ContactPlan.load(path)
        lasts_s = min(plan.duration_s, duration_s or plan.duration_s)
        return {**base, "nodes": plan.nodes, "duration_s": lasts_s, "contacts": str(path.resolve())}
    if path.is_dir():
        if not (path / FACTS_FILE).exists() and (path / PLAN_FILE).is_file():
            return {**recording_tables(path / PLAN_FILE, range_m, duration_s), "name": path.name}
        facts = FleetFacts.read(path)
        lasts_s = duration_s or facts.duration_s
        return {
            **base,
            **_movement_tables(
                {"model": FleetMovement.name, "folder": str(path.resolve())}, facts.nodes, lasts_s, range_m
            ),
        }
    name, nodes, lasts_s = _recorded_movement(path)
    movement: dict[str, object] = {"model": name, "file": str(path.resolve())}
    return {**base, **_movement_tables(movement, nodes, duration_s or lasts_s, range_m)}


def _recorded_movement(path: Path) -> tuple[str, int, float]:
    """The movement model of a file, its nodes and its duration; a UserError if several models can read it."""
    found: dict[str, tuple[int, float]] = {}
    refusals: dict[str, str] = {}
    players = {name: kind for name, kind in movement_models().items() if issubclass(kind, MovementFormat)}
    for name, kind in players.items():
        try:
            extent = kind(file=str(path.resolve())).extent()
        except (UserError, OSError, TypeError, UnicodeDecodeError) as error:
            refusals[name] = str(error)
            continue
        if extent[0] >= 1:
            found[name] = extent
    try:
        looks = format_of(path).name
    except UserError as error:
        looks = str(error)
    if not found and looks in FORMATS:
        # The reader of the detected format gives the best error.
        raise UserError(refusals.get(looks) or f"{path}: is {FORMATS[looks].summary}: {_INGEST}")
    if not found:
        raise UserError(
            f"{path}: is no fleet; give a scenario (.toml), a contact plan (.parquet), movement "
            f"({', '.join(players)}), or a folder that `carrycast ingest` made"
        )
    if len(found) > 1 or (looks not in FORMATS and "bonnmotion" in found):
        raise UserError(f"{path}: may be {' or '.join(found)} or something else: {_INGEST}")
    [(name, (nodes, lasts_s))] = found.items()
    return name, nodes, lasts_s


def _movement_tables(
    movement: dict[str, object], nodes: int, lasts_s: float, range_m: float | None
) -> dict[str, object]:
    """The tables of a scenario that plays recorded movement."""
    if range_m is None:
        recorded = movement.get("file", movement.get("folder"))
        raise UserError(f"{recorded}: holds movement; say within what distance nodes meet, as in --range 250")
    radio = {"model": "disk", "range_m": range_m}
    return {"nodes": nodes, "duration_s": lasts_s, "mobility": movement, "radio": radio}


def _has_files(workload: Mapping[str, object]) -> bool:
    entries = workload.get("publish", [])
    return isinstance(entries, list) and any(isinstance(one, dict) and "file" in one for one in entries)


def _absolute_files(entries: object, folder: Path) -> list[dict[str, object]]:
    assert isinstance(entries, list)
    return [{**one, "file": str((folder / one["file"]).resolve())} if "file" in one else one for one in entries]


def split_fleet(scenario: Scenario, share: float, folder: Path) -> FleetParts:
    """Split a fleet into a training part and a held-out part.

    A recording exists once, so its time is cut. Random movement differs with each seed, so other seeds are held out.
    """
    if not 0.1 <= share <= 0.9:
        raise UserError(f"--train {share:g}: a share of the time between 0.1 and 0.9")
    cut_s = scenario.duration_s * share
    if scenario.contacts is not None:
        plan = ContactPlan.load(Path(str(scenario.resolve_files().contacts)))
        folder.mkdir(parents=True, exist_ok=True)
        first = _save_slice(plan, 0.0, cut_s, folder / "training.parquet")
        rest = _save_slice(plan, cut_s, scenario.duration_s, folder / "held-out.parquet")
        changes: tuple[dict[str, object], dict[str, object]] = ({"contacts": first}, {"contacts": rest})
    elif isinstance(scenario.mobility_model(), MovementFormat | FleetMovement):
        changes = ({}, {"mobility": {"model": "excerpt", "from_s": cut_s, "of": scenario.mobility}})
    else:
        return FleetParts(scenario, scenario, "each seed draws movement of its own; other seeds are held out")
    lengths_s = (cut_s, scenario.duration_s - cut_s)
    table = msgspec.to_builtins(scenario)
    training, held_out = (
        parse_scenario({**table, **change, "duration_s": length_s}, f"the {name} part ({length_s:g} s)")
        for name, change, length_s in zip(("training", "held-out"), changes, lengths_s, strict=True)
    )
    return FleetParts(
        training, held_out, f"the first {cut_s:g} s are learned from, the {lengths_s[1]:g} s after are held out"
    )


def _save_slice(plan: ContactPlan, from_s: float, to_s: float, path: Path) -> str:
    """Save the contacts of a time window, with times relative to its start; return the path."""
    inside = (plan.start_s < to_s) & (plan.end_s > from_s)
    start_s = np.maximum(plan.start_s[inside], from_s) - from_s
    end_s = np.minimum(plan.end_s[inside], to_s) - from_s
    part = ContactPlan.of(plan.nodes, to_s - from_s, plan.a[inside], plan.b[inside], start_s, end_s).tidy()
    part.save(path)
    return str(path.resolve())
