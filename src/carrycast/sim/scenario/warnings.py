"""Warnings about scenarios that run but give meaningless results, one line each, before anything runs.

A scenario that cannot run is rejected with an error. A scenario whose results would not mean what its author expects
runs with a warning. A warning is given only where it is certain.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from carrycast.core.protocol import Capability, RunsProcessors, find_protocol, protocol_names
from carrycast.errors import UserError
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.mobility import MobilityModel, Recording, Trajectories
from carrycast.sim.scenario.inputs import input_digest
from carrycast.sim.scenario.movement import compute_movement
from carrycast.sim.scenario.roles import draw_roles
from carrycast.sim.scenario.scenario import DEFAULT_AREA_M, Scenario
from carrycast.sim.scenario.workload import draw_workload
from carrycast.sim.scenario.workload_warnings import find_workload_warnings, limit_warnings

BARELY = 0.01
"""The share of a run that a recording may lack without a warning: it ends with its last sample, a step too early."""
MOST_RECORDINGS = 16
MOST_PUBLICATIONS = 20_000
"""The most publications for which the presence of their nodes is checked."""
MOST_NODE_SECONDS = 500 * 3600
"""Nodes times simulated seconds whose movement takes some seconds to compute. The movement of larger scenarios is
checked only in a run, which computes it anyway."""


class _Recordings:
    """A cache of the last few recordings, so that the points of a sweep do not read their file again."""

    def __init__(self) -> None:
        self._known: dict[bytes, Recording | None] = {}

    def of(self, model: MobilityModel, digest: str) -> Recording | None:
        """Return the recording that a model plays; `digest` identifies the content of its files."""
        key = msgspec.msgpack.encode((model.name, model, digest), order="deterministic")
        if key not in self._known:
            if len(self._known) >= MOST_RECORDINGS:
                self._known.clear()
            self._known[key] = model.recording()
        return self._known[key]


_recordings = _Recordings()


def find_warnings(scenario: Scenario, seed: int = 1, moving: bool | None = None) -> list[str]:
    """Find the reasons why results of a run would be meaningless.

    `moving`: whether to check the movement too. By default it is checked if computing it takes only seconds.
    """
    found = [
        *_warn_recording(scenario),
        *_warn_contact_file(scenario),
        *_warn_late_starts(scenario),
        *find_workload_warnings(scenario, _try_draw_roles(scenario, seed)),
    ]
    found += _warn_ignored_processors(scenario)
    if moving is None:
        moving = scenario.nodes * scenario.duration_s <= MOST_NODE_SECONDS
    return [*found, *(_warn_movement(scenario, seed) if moving else ())]


def merge_warnings(warnings: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Merge the warnings of the points of a sweep: each text once, with the points that it applies to."""
    texts = dict.fromkeys(text for _, found in warnings for text in found)
    said = []
    for text in texts:
        points = [name for name, found in warnings if text in found]
        if len(points) == len(warnings):
            said.append(text)
        elif len(points) == 1:
            said.append(f"at {points[0]}: {text}")
        else:
            said.append(f"at {len(points)} of {len(warnings)} points, as {points[0]}: {text}")
    return said


def _warn_recording(scenario: Scenario) -> Iterator[str]:
    """Warn if recorded movement is shorter than the run or has more nodes."""
    model = scenario.mobility_model()
    recording = None if model is None else _recordings.of(model, input_digest(scenario))
    if recording is None:
        return
    name = Path(recording.file).name
    if scenario.duration_s > recording.lasts_s * (1 + BARELY):
        yield (
            f"duration_s: the movement in {name} ends at {recording.lasts_s:g} s, the run at "
            f"{scenario.duration_s:g} s; set duration_s = {recording.lasts_s:g} or less"
        )
    left_out = recording.nodes - scenario.nodes
    if left_out > 0 and not recording.first_only:
        yield (
            f"nodes: {name} holds {recording.nodes} nodes, the scenario has {scenario.nodes}; "
            f"the last {left_out} of the file are left out"
        )


def _warn_contact_file(scenario: Scenario) -> Iterator[str]:
    """Warn if replayed contacts are shorter than the run or have fewer nodes."""
    file = scenario.resolve_files().contacts
    if file is None:
        return
    path = Path(file)
    plan = ContactPlan.load(path) if path.suffix == ".parquet" else ContactPlan.from_one_events(path)
    if scenario.duration_s > plan.duration_s * (1 + BARELY):
        yield (
            f"duration_s: the contacts in {path.name} end at {plan.duration_s:g} s, the run at "
            f"{scenario.duration_s:g} s; set duration_s = {plan.duration_s:g} or less"
        )
    if plan.nodes < scenario.nodes and not scenario.wires:
        yield (
            f"nodes: {path.name} holds contacts of {plan.nodes} nodes, the scenario has {scenario.nodes}; "
            f"the last {scenario.nodes - plan.nodes} never meet anybody"
        )


def _warn_late_starts(scenario: Scenario) -> Iterator[str]:
    """Warn of entries that begin at or after the end of the run."""
    end_s = scenario.duration_s
    starts: list[tuple[str, float | None]] = []
    starts += [(f"subscribe[{place}].at_s", entry.at_s) for place, entry in enumerate(scenario.subscribe)]
    starts += [(f"advertise[{place}].at_s", entry.at_s) for place, entry in enumerate(scenario.advertise)]
    starts += [(f"request[{place}].at_s", entry.at_s) for place, entry in enumerate(scenario.request)]
    starts += [
        (f"request[{place}].from_s", entry.from_s) for place, entry in enumerate(scenario.request) if entry.at_s is None
    ]
    starts += [(f"command[{place}].at_s", entry.at_s) for place, entry in enumerate(scenario.command)]
    yield from limit_warnings(
        [
            f"{key}: {at_s:g} s is not before the end of the run, {end_s:g} s"
            for key, at_s in starts
            if at_s is not None and at_s >= end_s
        ]
    )
    yield from limit_warnings(
        [
            f"publish[{place}].from_s: {entry.from_s:g} s is the end of the run; nothing has time to arrive"
            for place, entry in enumerate(scenario.publish)
            if entry.from_s >= end_s
        ]
    )


def _try_draw_roles(scenario: Scenario, seed: int) -> dict[str, list[int]] | None:
    """Draw the nodes of each role; None if the draw does not fit, which the run reports itself."""
    try:
        return draw_roles(scenario.roles, scenario.nodes, seed, scenario.name)
    except UserError:
        return None


def _warn_ignored_processors(scenario: Scenario) -> Iterator[str]:
    """Warn if the protocol ignores processors, so that the events they would derive are missing."""
    if not scenario.processors or not scenario.protocol:
        return
    used = scenario.make_stack_plan().protocol
    if not issubclass(used, RunsProcessors):
        able = [name for name in protocol_names() if issubclass(find_protocol(name), RunsProcessors)]
        yield (
            f"processors: {used.name} runs no processors, so nothing is made of events; --protocol {', '.join(able)} do"
        )


def _warn_movement(scenario: Scenario, seed: int) -> Iterator[str]:
    """Warn of nodes that never meet, are never present, or leave the area that the protocol knows."""
    plan, moving = compute_movement(scenario, seed)
    if not scenario.wires and not (plan.start_s < scenario.duration_s).any():
        if scenario.nodes == 1:
            yield "nodes: a single node has nobody to send to"
        elif scenario.contacts is not None:
            yield f"contacts: {Path(scenario.contacts).name} holds no contact before the end of the run"
        else:
            yield f"radio.range_m: no two nodes ever come within {scenario.radio_model().range_m:g} m of each other"
    if moving is None:
        return
    yield from _warn_absent_nodes(scenario, seed, moving)
    yield from _warn_area(scenario, moving)


def _warn_absent_nodes(scenario: Scenario, seed: int, moving: Trajectories) -> Iterator[str]:
    never = np.flatnonzero(np.diff(moving.first) == 0)
    if len(never):
        yield f"mobility: {len(never)} of {scenario.nodes} nodes are never there in this time, as node {never[0]}"
    roles = _try_draw_roles(scenario, seed)
    there_s = np.zeros(moving.nodes)
    np.add.at(there_s, np.repeat(np.arange(moving.nodes), np.diff(moving.first)), moving.end_s - moving.start_s)
    if roles is None or not scenario.publish or (there_s >= scenario.duration_s * (1 - BARELY)).all():
        return
    played = draw_workload(
        scenario.subscribe,
        scenario.resolve_files().publish,
        roles,
        scenario.nodes,
        scenario.duration_s,
        seed,
        scenario.flow,
    ).publishes[:MOST_PUBLICATIONS]
    away = 0
    for publish in played:
        legs = slice(moving.first[publish.event.id.source], moving.first[publish.event.id.source + 1])
        present = (moving.start_s[legs] <= publish.time_s) & (publish.time_s <= moving.end_s[legs])
        away += not present.any()
    if 2 * away > len(played):
        yield f"publish: {away} of {len(played)} publications are made while their nodes are absent"


def _warn_area(scenario: Scenario, moving: Trajectories) -> Iterator[str]:
    """Warn if nodes leave the default area and the protocol reads it. Recorded movement ignores the area."""
    if scenario.area_m != DEFAULT_AREA_M or not scenario.protocol or not moving.legs:
        return
    plan = scenario.make_stack_plan()
    needs = plan.protocol.needs | plan.settings.needs()
    if plan.router is not None:
        needs |= plan.router.needs
    lasts_s = moving.end_s - moving.start_s
    reached = [
        np.concatenate((start_m, start_m + speed_mps * lasts_s))
        for start_m, speed_mps in ((moving.x_m, moving.vx_mps), (moving.y_m, moving.vy_mps))
    ]
    # A tolerance of a hundredth of a meter for rounding errors at the border of the area.
    beyond = any(
        (places < -0.01).any() or (places > side_m + 0.01).any()
        for places, side_m in zip(reached, scenario.area_m, strict=True)
    )
    if Capability.AREA in needs and beyond:
        width_m, height_m = scenario.area_m
        yield (
            f"area_m: is not given, so {plan.protocol.name} is told of {width_m:g} m x {height_m:g} m, and nodes move "
            "beyond that"
        )
