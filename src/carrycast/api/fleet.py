"""Recorded movement: a fleet's folder, its contacts and its picture."""

import shutil
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from carrycast.api.results import Contacts
from carrycast.errors import UserError

PathLike: TypeAlias = str | Path


class Fleet:
    """Recorded movement: the folder that `Fleet.ingest` (or `carrycast ingest`) made.

    >>> import carrycast
    >>> fleet = carrycast.Fleet.ingest(carrycast.example("fleet/gps.csv"), out=tmp_path / "fleet")
    >>> fleet.contacts(range_m=250)
    <Contacts of ... nodes within 250 m: ...>
    """

    def __init__(self, folder: PathLike) -> None:
        """Open a fleet's folder; a `UserError` says why it is not one."""
        from carrycast.sim.mobility import FleetFacts

        self.folder = Path(folder)
        facts = FleetFacts.read(self.folder)
        self.nodes, self.duration_s = facts.nodes, facts.duration_s

    @classmethod
    def open(cls, folder: PathLike) -> "Fleet":
        """Open a fleet's folder."""
        return cls(folder)

    @classmethod
    def ingest(
        cls,
        files: PathLike | Sequence[PathLike],
        out: PathLike,
        *,
        master: str | None = None,
        max_speed_mps: float | None = None,
        gap_s: float | None = None,
        every_s: float | None = None,
        **options: Any,
    ) -> "Fleet":
        """Read files of any known format, clean them and write a fleet's folder.

        `options` are those of `carrycast ingest` that say how files are read: `format`, `columns` (a dict), `crs`, ...
        """
        from carrycast.analysis.fleets import CleaningRules, ReadOptions, ingest
        from carrycast.core.settings import parse_settings

        given = {"max_speed_mps": max_speed_mps, "gap_s": gap_s, "every_s": every_s}
        rules = parse_settings(
            {key: value for key, value in given.items() if value is not None}, CleaningRules, "ingest"
        )
        try:
            source = ReadOptions(**options)
        except TypeError as error:
            raise UserError(f"ingest: {error}") from None
        paths = [files] if isinstance(files, str | Path) else files
        ingest([Path(path) for path in paths], Path(out), source, rules, master)
        return cls(out)

    def contacts(self, range_m: float, duration_s: float | None = None, master: str | None = None) -> Contacts:
        """Compute the exact times at which two nodes come within range of each other and part again."""
        from carrycast.analysis.fleets import save_fleet_plan

        with tempfile.TemporaryDirectory(prefix="carrycast-") as scratch:
            path = Path(scratch) / "contacts.parquet"
            return Contacts(save_fleet_plan(self.folder, range_m, duration_s, path, master), range_m)

    def plot(self, path: PathLike | None = None) -> "FleetPicture":
        """The picture of the fleet: its tracks, how many nodes are there when, and gaps; with `path`, save it (PNG)."""
        picture = self.folder / "fleet.png"
        if not picture.is_file():
            raise UserError(f"{self.folder}: has no picture; ingest it again")
        if path is not None:
            shutil.copyfile(picture, path)
        return FleetPicture(picture.read_bytes())

    def _repr_html_(self) -> str:
        """The fleet's page begins like this: what was read, and the picture."""
        import base64

        said = f"<p>{escape(repr(self))}</p>"
        picture = self.folder / "fleet.png"
        if not picture.is_file():
            return said
        data = base64.b64encode(picture.read_bytes()).decode()
        return f'{said}<img alt="tracks of the fleet" style="max-width: 100%" src="data:image/png;base64,{data}">'

    def __repr__(self) -> str:
        return f"<Fleet {self.folder}: {self.nodes} nodes, {self.duration_s:g} s>"


class FleetPicture(NamedTuple):
    """The picture of a fleet, as PNG; notebooks show it."""

    png: bytes

    def _repr_png_(self) -> bytes:
        return self.png
