"""The contact plan: which nodes are linked, and from when to when. It can be saved, loaded and replayed."""

import os
import re
from array import array
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carrycast.errors import UserError, WorkError
from carrycast.sim.mobility import Floats, Integers, TraceFile
from carrycast.version import read_metadata

if TYPE_CHECKING:
    import pyarrow as pa

Booleans = NDArray[np.bool_]

MICROSECONDS = 1_000_000
# Node numbers in files are bounded, so that a wrong one cannot make a run with a billion nodes.
MAX_NODES = 10_000_000
# The longest run: three years in seconds, beyond which a microsecond is lost in a 64-bit float.
MAX_DURATION_S = 1e8
VERSION_KEY, VERSION = b"carrycast.contacts", b"1"
"""The version of the columns, in the metadata of a saved plan."""
_HOST = re.compile(r"[^\d\s]*(\d{1,8})")


def order_by(major: Integers, minor: Integers) -> Integers:
    """Order by two columns of numbers not below 0. Where both fit one number they are sorted as one, much faster."""
    if not len(major):
        return np.zeros(0, dtype=np.int64)
    span = int(minor.max()) + 1
    if (int(major.max()) + 1) * span < 1 << 63:
        return np.argsort(major * span + minor)
    return np.lexsort((minor, major))


@dataclass(frozen=True, slots=True, eq=False)
class ContactChanges:
    """Links that come and go, in the order of time, then downs before ups, then a and b."""

    time_s: Floats
    up: Booleans
    a: Integers
    b: Integers


@dataclass(frozen=True, slots=True, eq=False)
class ContactPlan:
    """Intervals in which a < b are linked, ordered by (start_s, a, b); those of one pair never overlap."""

    nodes: int
    duration_s: float
    a: Integers
    b: Integers
    start_s: Floats
    end_s: Floats

    @classmethod
    def of(
        cls, nodes: int, duration_s: float, a: Integers, b: Integers, start_s: Floats, end_s: Floats
    ) -> "ContactPlan":
        """A plan of contacts given in any order."""
        order = order_by(np.rint(start_s * MICROSECONDS).astype(np.int64), a * nodes + b)
        return cls(nodes, float(duration_s), a[order], b[order], start_s[order], end_s[order])

    def __len__(self) -> int:
        return len(self.a)

    def fault(self) -> str | None:
        """An error message for an invalid plan; None for a valid one."""
        a, b, start_s, end_s = self.a, self.b, self.start_s, self.end_s
        if not 0 <= self.nodes <= MAX_NODES:
            return f"the number of nodes must be from 0 to {MAX_NODES}, not {self.nodes}"
        if not 0 < self.duration_s <= MAX_DURATION_S:
            return f"duration_s must be above 0 and at most {MAX_DURATION_S:g}, not {self.duration_s:g}"
        if not bool(((a >= 0) & (a < b) & (b < self.nodes)).all()):
            return f"every contact needs 0 <= a < b < {self.nodes}"
        # Written so that a time that is not a number fails too.
        if not bool(((start_s >= 0) & (start_s < end_s) & (end_s <= self.duration_s)).all()):
            return f"every contact needs 0 <= start_s < end_s <= {self.duration_s:g}"
        order = np.lexsort((start_s, b, a))
        same = (np.diff(a[order]) == 0) & (np.diff(b[order]) == 0)
        if bool((same & (start_s[order][1:] < end_s[order][:-1])).any()):
            return "contacts of a pair overlap"
        return None

    def tidy(self) -> "ContactPlan":
        """The same links with times rounded to the simulator's clock, in whole microseconds.

        Contacts that then have no length are left out, and touching contacts of a pair are merged.
        """
        start_s, end_s = (np.rint(time_s * MICROSECONDS) / MICROSECONDS for time_s in (self.start_s, self.end_s))
        end_s = np.where(self.end_s < self.duration_s, np.minimum(end_s, self.duration_s), self.duration_s)
        real = np.flatnonzero(end_s > start_s)
        order = real[np.lexsort((start_s[real], self.b[real], self.a[real]))]
        a, b, start_s, end_s = self.a[order], self.b[order], start_s[order], end_s[order]
        new = np.ones(len(order) + 1, dtype=np.bool_)
        new[1:-1] = (np.diff(a) != 0) | (np.diff(b) != 0) | (start_s[1:] > end_s[:-1])
        first, last = np.flatnonzero(new[:-1]), np.flatnonzero(new[1:])
        return ContactPlan.of(self.nodes, self.duration_s, a[first], b[first], start_s[first], end_s[last])

    def changes(self, before_s: float = inf) -> ContactChanges:
        """Every link-up and link-down before a time.

        Contacts open at the end of the plan go down there, since a run may last longer than the plan that it replays; a
        run that ends with the plan leaves them open by passing its end as `before_s`.
        """
        opening, closing = self.start_s < before_s, self.end_s < before_s
        time_s = np.concatenate((self.start_s[opening], self.end_s[closing]))
        up = np.arange(len(time_s)) < int(opening.sum())
        a = np.concatenate((self.a[opening], self.a[closing]))
        b = np.concatenate((self.b[opening], self.b[closing]))
        pairs = self.nodes * self.nodes
        order = order_by(np.rint(time_s * MICROSECONDS).astype(np.int64), up * pairs + a * self.nodes + b)
        return ContactChanges(time_s[order], up[order], a[order], b[order])

    def durations_s(self) -> Floats:
        """The duration of each contact, without the time before the start or after the end of the run."""
        return self.end_s - self.start_s

    def inter_contact_s(self) -> Floats:
        """The times from the end of each contact of a pair to the start of its next."""
        order = np.lexsort((self.start_s, self.b, self.a))
        same = (np.diff(self.a[order]) == 0) & (np.diff(self.b[order]) == 0)
        gaps: Floats = (self.start_s[order][1:] - self.end_s[order][:-1])[same]
        return gaps

    def mean_degree(self) -> float:
        """The neighbors of a node, averaged over nodes and time; 0 without nodes."""
        return 2 * float(self.durations_s().sum()) / (self.nodes * self.duration_s) if self.nodes else 0.0

    def summary(self) -> dict[str, float | int | None]:
        """The most important statistics of a plan."""
        durations_s, gaps_s = self.durations_s(), self.inter_contact_s()
        return {
            "nodes": self.nodes,
            "duration_s": self.duration_s,
            "contacts": len(self),
            "mean_degree": self.mean_degree(),
            "contact_mean_s": float(durations_s.mean()) if len(durations_s) else None,
            "contact_p50_s": float(np.median(durations_s)) if len(durations_s) else None,
            "inter_contact_mean_s": float(gaps_s.mean()) if len(gaps_s) else None,
            "inter_contact_p50_s": float(np.median(gaps_s)) if len(gaps_s) else None,
        }

    def degree_over_time(self) -> tuple[Floats, Floats]:
        """The times at which links change, and the neighbors per node from each time to the next; starts at 0."""
        changes = self.changes(self.duration_s)
        links = np.cumsum(np.where(changes.up, 1, -1))
        last = np.flatnonzero(np.append(np.diff(changes.time_s) > 0, True)) if len(links) else np.zeros(0, np.int64)
        time_s, degree = changes.time_s[last], 2 * links[last] / max(self.nodes, 1)
        if not len(time_s) or time_s[0] > 0:
            time_s, degree = np.insert(time_s, 0, 0.0), np.insert(degree, 0, 0.0)
        return time_s, degree

    def save(self, path: Path) -> None:
        """Write the plan as Parquet: a, b, start_s, end_s. The file is written atomically."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {"a": self.a, "b": self.b, "start_s": self.start_s, "end_s": self.end_s}
        metadata = {"nodes": str(self.nodes), "duration_s": repr(self.duration_s), VERSION_KEY: VERSION}
        table = pa.table({name: pa.array(column) for name, column in columns.items()})
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            pq.write_table(table.replace_schema_metadata(metadata), partial)
            os.replace(partial, path)
        except OSError as error:
            raise WorkError(f"{path}: the contact plan could not be written: {error.strerror or error}") from None
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> "ContactPlan":
        """Read and check a plan that `save` wrote, or any Parquet file with its columns and metadata."""
        table = _read_parquet(path)
        kept = table.schema.metadata or {}
        # Plans made by other programs have no version; only their columns are checked.
        if read_metadata(kept, VERSION_KEY, VERSION) != VERSION:
            raise UserError(f"{path}: a contact plan of another version of carrycast; make it again")
        try:
            nodes, duration_s = int(kept[b"nodes"]), float(kept[b"duration_s"])
        except (KeyError, ValueError):
            raise UserError(f"{path}: not a contact plan: its metadata must give nodes and duration_s") from None
        integers = (table.column(name).to_numpy().astype(np.int64) for name in ("a", "b"))
        floats = (table.column(name).to_numpy().astype(np.float64) for name in ("start_s", "end_s"))
        plan = cls(nodes, duration_s, *integers, *floats)
        if (fault := plan.fault()) is not None:
            raise UserError(f"{path}: not a contact plan: {fault}")
        return plan.tidy()

    @classmethod
    def from_one_events(cls, path: Path, nodes: int | None = None, duration_s: float | None = None) -> "ContactPlan":
        """The connections in an event file of the ONE (StandardEvents); other events are ignored.

        Without `nodes` the highest host number decides the number of nodes; without `duration_s` the plan ends with the
        last event. A connection that never goes down lasts to the end.
        """
        reader = _OneEvents(TraceFile(path))
        reader.read()
        return reader.plan(nodes, duration_s)


def _read_parquet(path: Path) -> "pa.Table":
    """Read a table and check that the columns of a plan have types that convert without loss."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give a contact plan in Parquet") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: not a contact plan, or cut off: {reason}") from None
    for name, right, kind in (
        ("a", pa.types.is_integer, "whole numbers"),
        ("b", pa.types.is_integer, "whole numbers"),
        ("start_s", pa.types.is_floating, "floating-point numbers"),
        ("end_s", pa.types.is_floating, "floating-point numbers"),
    ):
        if name not in table.column_names:
            raise UserError(f"{path}: not a contact plan: column {name} is missing; it needs a, b, start_s, end_s")
        if not right(table.schema.field(name).type) or table.column(name).null_count:
            raise UserError(f"{path}: not a contact plan: column {name} must hold {kind} and no nulls")
    return table


# The other events of such files (message created, sent, delivered, aborted, dropped, removed) and their least fields.
_OTHER_EVENTS = {"C": 6, "S": 5, "DE": 5, "A": 5, "DR": 4, "R": 4}


class _OneEvents:
    """Reads `<time> CONN <host> <host> up|down [interface]` lines into contacts."""

    def __init__(self, file: TraceFile) -> None:
        self.file = file
        self.a, self.b, self.start_s, self.end_s = array("q"), array("q"), array("d"), array("d")
        # The time each connection came up, by pair and interface, in the order of coming up.
        self.open: dict[tuple[int, int], dict[str, float]] = {}
        self.time_s = 0.0
        self.highest = -1

    def read(self) -> None:
        """Go through the file once."""
        expected = "<time> CONN <host> <host> up|down [interface]"
        for line in self.file.lines():
            fields = line.split()
            if len(fields) < 2:
                raise self.file.error(f"expected {expected}")
            time_s = self.file.number(fields[0], "a time in seconds", 0.0, MAX_DURATION_S)
            if time_s < self.time_s:
                raise self.file.error(f"time {time_s:g} comes after {self.time_s:g}; events must be sorted by time")
            self.time_s = time_s
            if len(fields) >= _OTHER_EVENTS.get(fields[1], len(fields) + 1):
                continue
            if fields[1] != "CONN":
                raise self.file.error(f"expected {expected}, or another event: {', '.join(_OTHER_EVENTS)}")
            state = fields[4].lower() if len(fields) in (5, 6) else ""
            if state not in ("up", "down"):
                raise self.file.error(f"expected {expected}")
            one, other = self._parse_host(fields[2]), self._parse_host(fields[3])
            if one == other:
                raise self.file.error(f"host {one} is connected to itself; expected two hosts")
            self._change((min(one, other), max(one, other)), fields[5] if len(fields) == 6 else "", state == "up")

    def _parse_host(self, name: str) -> int:
        match = _HOST.fullmatch(name)
        if match is None or int(match[1]) >= MAX_NODES:
            raise self.file.error(f"host {name!r}: expected a number below {MAX_NODES}, letters may stand before it")
        host = int(match[1])
        self.highest = max(self.highest, host)
        return host

    def _change(self, pair: tuple[int, int], interface: str, up: bool) -> None:
        """A pair is in contact while any of its interfaces is connected."""
        links = self.open.setdefault(pair, {})
        if up:
            if interface in links:
                raise self.file.error(f"hosts {pair[0]} and {pair[1]} come up twice; expected down in between")
            links[interface] = min(links.values(), default=self.time_s)
            return
        if interface not in links:
            raise self.file.error(f"hosts {pair[0]} and {pair[1]} go down but are not up; expected up before")
        start_s = links.pop(interface)
        if not links:
            self._keep(pair, start_s, self.time_s)

    def _keep(self, pair: tuple[int, int], start_s: float, end_s: float) -> None:
        self.a.append(pair[0])
        self.b.append(pair[1])
        self.start_s.append(start_s)
        self.end_s.append(end_s)

    def plan(self, nodes: int | None, duration_s: float | None) -> ContactPlan:
        """The contacts read; contacts still open last to the end."""
        if self.highest < 0:
            raise UserError(f"{self.file.path}: no connections; expected lines <time> CONN <host> <host> up|down")
        if nodes is not None and self.highest >= nodes:
            raise UserError(f"{self.file.path}: host {self.highest} is in the file, but there are only {nodes} nodes")
        until_s = self.time_s if duration_s is None else duration_s
        if not 0 < until_s <= MAX_DURATION_S:
            raise UserError(f"{self.file.path}: the plan would last {until_s:g} s; expected up to {MAX_DURATION_S:g} s")
        for pair, links in self.open.items():
            if links:
                self._keep(pair, min(links.values()), max(until_s, self.time_s))
        a, b = np.array(self.a, dtype=np.int64), np.array(self.b, dtype=np.int64)
        start_s, end_s = np.array(self.start_s), np.minimum(self.end_s, until_s)
        count = self.highest + 1 if nodes is None else nodes
        return ContactPlan(count, until_s, a, b, start_s, end_s).tidy()
