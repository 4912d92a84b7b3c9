"""The scene of a run: the ground, the movement of nodes, and their links."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from carrycast.analysis.player.cuts import Cut, find_cuts
from carrycast.analysis.player.hearing import Hearing, find_hearing
from carrycast.errors import UserError
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.mobility import Trajectories
from carrycast.sim.radio import SignalRadio
from carrycast.sim.scenario import DEFAULT_AREA_M, Scenario, compute_movement

SCENE_FOLDER = "scene"
"""The folder of the scene, beside the tables of a trace."""
VERSION = "1"


class Ground(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The background of the map."""

    version: str = VERSION
    nodes: int
    duration_s: float
    area_m: tuple[float, float] | None
    """None if the scenario names no area: the page frames the positions."""
    roads: list[list[float]] = []
    """The width of each road, followed by x and y of the points on its center line."""
    buildings: list[list[float]] = []
    """The outer corners of each building, x and y in turn."""
    squares: tuple[int, int] | None = None
    """Columns and rows, if nodes live in the squares of a grid."""
    moves: bool
    """Whether the positions of nodes are known."""


@dataclass(frozen=True)
class Scene:
    """The parts of a run that do not depend on the protocol."""

    ground: Ground
    plan: ContactPlan
    moving: Trajectories | None
    wires: list[tuple[int, int]] = field(default_factory=list)
    """Pairs that are always linked."""
    cuts: list[Cut] = field(default_factory=list)
    """The links that faults cut."""
    hearing: Hearing | None = None
    """Who hears whom, for radios with powers."""

    @classmethod
    def of(cls, scenario: Scenario, seed: int) -> "Scene":
        """Compute the scene of a scenario and a seed."""
        plan, moving = compute_movement(scenario, seed)
        wires = sorted({(min(a, b), max(a, b)) for wire in scenario.wires for a, b in wire.pairs(scenario.nodes)})
        ground, cuts = _make_ground(scenario, moving is not None), find_cuts(scenario, plan, seed)
        return cls(ground, plan, moving, wires, cuts, find_hearing(scenario, moving, seed))

    def save(self, trace: Path) -> None:
        """Save the scene in a trace's folder, so that the player can show the trace with it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = trace / SCENE_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self.plan.save(folder / "contacts.parquet")
        if self.moving is not None:
            moving = self.moving
            node = np.repeat(np.arange(moving.nodes), np.diff(moving.first))
            names = ("start_s", "end_s", "x_m", "y_m", "vx_mps", "vy_mps")
            columns = {"node": node, **{name: getattr(moving, name) for name in names}}
            pq.write_table(pa.table(columns), folder / "legs.parquet", compression="zstd")
        if self.hearing is not None:
            step_us, *chances = self.hearing
            # A sample without pairs has no row of its own, so counts are a table of their own.
            counts = pa.table({"pairs": chances[0]}).replace_schema_metadata({b"step_us": str(step_us).encode()})
            pq.write_table(counts, folder / "hearing_samples.parquet", compression="zstd")
            pairs = pa.table(dict(zip(Hearing._fields[2:], chances[1:], strict=True)))
            pq.write_table(pairs, folder / "hearing.parquet", compression="zstd")
        kept = _StoredScene(self.ground, self.wires, self.cuts)
        (folder / "ground.json").write_bytes(msgspec.json.encode(kept))

    @classmethod
    def load(cls, trace: Path) -> "Scene | None":
        """Load a saved scene; None for the trace of a live network or of an older carrycast."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = trace / SCENE_FOLDER
        if not folder.is_dir():
            return None
        try:
            kept = msgspec.json.decode((folder / "ground.json").read_bytes(), type=_StoredScene)
            moving = None
            if kept.ground.moves:
                legs = pq.ParquetFile(folder / "legs.parquet").read()
                node, *rest = (legs.column(name).to_numpy() for name in legs.column_names)
                moving = Trajectories.from_legs(kept.ground.nodes, node, *rest)
            hearing = _load_hearing(folder)
        except (OSError, pa.ArrowException, msgspec.DecodeError, TypeError, ValueError, AssertionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"{folder}: is no scene, or cut off: {reason}; record the trace again") from None
        if kept.ground.version != VERSION:
            raise UserError(f"{folder}: is of another version of carrycast; record the trace again")
        plan = ContactPlan.load(folder / "contacts.parquet")
        return cls(kept.ground, plan, moving, kept.wires, kept.cuts, hearing)


def _load_hearing(folder: Path) -> Hearing | None:
    import pyarrow.parquet as pq

    if not (folder / "hearing.parquet").exists():
        return None
    samples = pq.ParquetFile(folder / "hearing_samples.parquet").read()
    pairs = pq.ParquetFile(folder / "hearing.parquet").read()
    step_us = int(samples.schema.metadata[b"step_us"])
    columns = [pairs.column(name).to_numpy() for name in Hearing._fields[2:]]
    return Hearing(step_us, samples.column("pairs").to_numpy(), *columns)


def _draw_buildings(scenario: Scenario) -> list[list[float]]:
    """The outer rings of the buildings of the scenario's radio."""
    radio = scenario.radio_model()
    obstacles = radio.read_obstacles() if isinstance(radio, SignalRadio) else None
    buildings = [] if obstacles is None else obstacles.buildings
    return [[round(number, 1) for corner in building[0] for number in corner] for building in buildings]


class _StoredScene(msgspec.Struct, frozen=True):
    ground: Ground
    wires: list[tuple[int, int]]
    cuts: list[Cut] = []


def _make_ground(scenario: Scenario, moves: bool) -> Ground:
    model = scenario.mobility_model()
    map = None if model is None else model.road_map()
    roads = []
    for road in () if map is None else map.roads:
        width_m = map.lane_m * road.lanes * (1 if road.one_way else 2) if map is not None else 0.0
        roads.append([width_m, *(number for place in road.places for number in place)])
    columns, rows = getattr(model, "columns", None), getattr(model, "rows", None)
    # Only models with groups move nodes between squares; a grid of static nodes has columns, too.
    lives = isinstance(columns, int) and isinstance(rows, int) and hasattr(model, "groups")
    # A recording ignores the area, so the default area does not contain its nodes.
    framed = moves and not (scenario.area_m == DEFAULT_AREA_M and model is not None and model.recording() is not None)
    return Ground(
        nodes=scenario.nodes,
        duration_s=scenario.duration_s,
        area_m=scenario.area_m if framed else None,
        roads=roads,
        buildings=_draw_buildings(scenario),
        squares=(int(columns), int(rows)) if lives and columns is not None and rows is not None else None,
        moves=moves,
    )
