"""Plays the recorded movement of a fleet, from a folder that `carrycast ingest` wrote."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel, Recording
from carrycast.sim.mobility.trajectory import Trajectories

if TYPE_CHECKING:
    import pyarrow as pa

FACTS_FILE = "fleet.json"
LEGS_FOLDER = "legs"
NODES_FOLDER = "nodes"
VERSION = 1
_COLUMNS = ("number", "start_s", "end_s", "x_m", "y_m", "vx_mps", "vy_mps")


class FleetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of `fleet.json` that a reader of a fleet's folder needs. The file has more, for people."""

    version: int
    nodes: int
    legs: int
    duration_s: float
    longest_leg_s: float
    """The duration of the longest leg: legs active at a time begin at most this long before it."""
    digest: str
    """A hash of all legs, so that a hash of this file covers the whole folder."""

    @classmethod
    def read(cls, folder: Path) -> "FleetFacts":
        """Read the facts of a folder. A UserError if it is no fleet, or one of another version."""
        path = folder / FACTS_FILE
        try:
            facts = msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            raise UserError(f"{folder}: holds no fleet; `carrycast ingest FILES --out {folder}` makes one") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
        except msgspec.MsgspecError as error:
            raise UserError(f"{path}: says nothing of a fleet ({error}); ingest it again") from None
        if facts.version != VERSION:
            raise UserError(f"{path}: a fleet of another version of carrycast; ingest it again")
        return facts


class FleetMovement(MobilityModel, frozen=True, kw_only=True):
    """Nodes move as recorded, and are absent where the recording has a gap.

    Nodes are taken in the order of their numbers; the table `nodes` of the fleet maps numbers to names.
    """

    name: ClassVar[str] = "fleet"
    summary: ClassVar[str] = "play a fleet's recorded movement, as `carrycast ingest` left it in a folder"

    folder: Annotated[
        str, Meta(min_length=1, description="folder that `carrycast ingest` made, relative to the scenario's folder")
    ]
    start_s: Annotated[float, Meta(ge=0, le=1e9, description="time of the recording at which the run starts")] = 0.0

    def with_files(self, change: Callable[[str], str]) -> Self:
        """Return a copy with the folder changed. `fleet.json`, with its hash of all legs, stands for the folder."""
        changed = change(str(Path(self.folder) / FACTS_FILE))
        return msgspec.structs.replace(self, folder=str(Path(changed).parent))

    def recording(self) -> Recording:
        """Return the extent of the fleet from `start_s` on."""
        facts = FleetFacts.read(Path(self.folder))
        return Recording(self.folder, facts.nodes, facts.duration_s - self.start_s)

    def vehicle_names(self) -> list[str]:
        """Return the names that the nodes have in the recording, in the order of their numbers."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        try:
            table = ds.dataset(Path(self.folder) / NODES_FOLDER, format="parquet").to_table(columns=["number", "node"])
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{self.folder}: its nodes cannot be read: {reason}; ingest it again") from None
        return [str(name) for name in table.sort_by("number")["node"].to_pylist()]

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Return the movement in the folder. Ignores `area` and `rng`."""
        folder = Path(self.folder)
        facts = FleetFacts.read(folder)
        if facts.nodes < nodes:
            raise UserError(f"{folder}: has {facts.nodes} nodes, but {nodes} are wanted; lower the number of nodes")
        if self.start_s >= facts.duration_s:
            raise UserError(f"{folder}: lasts {facts.duration_s:g} s; start_s = {self.start_s:g} is beyond its end")
        begin_s, until_s = self.start_s, self.start_s + duration_s
        legs = legs_between(folder, facts, begin_s, until_s, nodes)
        number, start_s, end_s, *rest = (legs[name].to_numpy() for name in _COLUMNS)
        return Trajectories.from_legs(
            nodes, number.astype(np.int64), start_s - begin_s, np.minimum(end_s, until_s) - begin_s, *rest
        )


def legs_between(
    folder: Path, facts: FleetFacts, begin_s: float, until_s: float, nodes: int | None = None
) -> "pa.Table":
    """Return the legs of a fleet that overlap an interval, of all nodes or only of the first `nodes`."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    start_s = pc.field("start_s")
    # Files are ordered by `start_s`, so the first two bounds skip most of them.
    wanted = (start_s >= begin_s - facts.longest_leg_s - 1e-6) & (start_s < until_s) & (pc.field("end_s") > begin_s)
    if nodes is not None:
        wanted &= pc.field("number") < nodes
    try:
        held = ds.dataset(folder / LEGS_FOLDER, format="parquet")
        if held.count_rows() != facts.legs:
            raise UserError(f"{folder}: {held.count_rows()} of its {facts.legs} legs are there; ingest it again")
        return held.to_table(columns=list(_COLUMNS), filter=wanted)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{folder}: its legs cannot be read: {str(error).splitlines()[0]}; ingest it again") from None
