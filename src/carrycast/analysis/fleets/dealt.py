"""Ingest in a few passes over files: survey, deal, clean, write. Spark spreads them; rows never pass through Java."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carrycast.analysis.fleets.bucket_tables import NODE_SUMS, Cleaning, Layout, Writing
from carrycast.analysis.fleets.buckets import Dealing, Logs, save_logs
from carrycast.analysis.fleets.cleaning import REASONS, Rules
from carrycast.analysis.fleets.picture import PATHS, STEPS, Sight, evenly, frame_of, ways
from carrycast.analysis.fleets.schema import NODES, REJECTED, names
from carrycast.analysis.fleets.survey import Naming, Survey, clash
from carrycast.analysis.fleets.tables import (
    MAX_NODES,
    Written,
    files_for,
    natural,
    origin_of,
    refuse_clash,
    refuse_wrong,
    told_of,
)
from carrycast.analysis.fleets.workers import each
from carrycast.errors import UserError
from carrycast.sim.mobility.fleet import LEGS_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Passes:
    """Those over the rows of one fleet, in their order."""

    def __init__(self, spark: "SparkSession", folder: Path, rules: Rules, logs: Logs) -> None:
        self._spark, self._folder, self._rules, self._logs = spark, folder, rules, logs
        self._scratch = folder / ".scratch"
        for name in ("dealt", "clean", "legs", "nodes", "sight"):
            (self._scratch / name).mkdir()
        for name in ("positions", "rejected", LEGS_FOLDER, "nodes"):
            (folder / name).mkdir()
        save_logs(logs, self._scratch)
        self._rejected = dict.fromkeys(REASONS, 0)

    def deal(self, files: Sequence[Path], naming: Naming, found: Survey, crs: str | None, alone: bool) -> None:
        """Every row into its bucket. `alone`: a name that two files have at the same time is refused."""
        dealing = Dealing(self._scratch, naming, self._rules, found.median_s, crs)
        told = each(self._spark, dealing.deal, [[k, str(path)] for k, path in enumerate(files)])
        self._rejected["unreadable"] += sum(one["unreadable"] for one in told)
        if not alone:
            return
        spans: dict[Any, tuple[float, float]] = {}
        for one in told:
            for log, low_s, high_s in one["spans"]:
                name = self._logs.names[log]
                known = spans.get(name, (low_s, high_s))
                spans[name] = (min(low_s, known[0]), max(high_s, known[1]))
        clashing = clash(spans)
        if clashing is not None:
            refuse_clash(*clashing)

    def tables(self, crs: str | None, found: Survey) -> tuple[Written, Sight]:
        """Clean the buckets and write all tables."""
        buckets = range(int(self._logs.bucket.max()) + 1)
        told = each(self._spark, Cleaning(self._scratch, self._rules).clean, list(buckets))
        for one in told:
            for reason, count in one["rejected"].items():
                self._rejected[reason] += count
        rejected = {reason: count for reason, count in sorted(self._rejected.items()) if count}
        kept = sum(one["kept"] for one in told)
        refuse_wrong(kept, rejected)
        self._close_rejected()
        ends = np.array([one["ends"] for one in told if one["ends"] is not None])
        start_s, end_s = float(ends[:, 0].min()), float(ends[:, 1].max())
        box_m = [*ends[:, 2:4].min(axis=0).tolist(), *ends[:, 4:].max(axis=0).tolist()]
        origin_m = origin_of(box_m, crs)
        numbers = self._numbers([node for one in told for node in one["nodes"]])
        west_m, south_m, east_m, north_m = (one - origin_m[k % 2] for k, one in enumerate(box_m))
        frame = frame_of(west_m, east_m, south_m, north_m)
        lasts_s = round(end_s - start_s, 6)
        edges_s = self._edges(found, start_s, end_s, kept)
        step_s = max(lasts_s / STEPS, 1e-6)
        layout = Layout(start_s, origin_m, self._rules.every_s, edges_s, frame, evenly(len(numbers), PATHS), step_s)
        writing = Writing(self._scratch, layout)
        items = [[k, [numbers[node] for node in one["nodes"]]] for k, one in enumerate(told) if one["nodes"]]
        positions = sum(each(self._spark, writing.write, items))
        gathered = each(self._spark, writing.gather, list(range(len(edges_s) + 1)))
        known = self._write_nodes({number: (fleet, node) for _, number, fleet, node in numbers.values()})
        legs = sum(one["legs"] for one in gathered)
        mixed = sum(int(one["digest"]) for one in gathered) % 2**64
        facts = {**told_of(start_s, end_s, crs, origin_m, box_m), "nodes": known, "legs": legs}
        facts |= {"longest_leg_s": max(one["longest_leg_s"] for one in gathered), "digest": f"{mixed:X}-{legs}"}
        written = Written(kept, rejected, legs, None if self._rules.every_s is None else positions, facts)
        return written, self._sight(layout)

    def _numbers(self, nodes: Sequence[int]) -> dict[int, tuple[int, int, str, str]]:
        """Of nodes that have a row: their numbers by fleet and name, numbers in names counted as numbers."""
        if len(nodes) > MAX_NODES:
            raise UserError(f"more than {MAX_NODES} nodes; is the node's column the right one? See --columns")
        name = {int(self._logs.node[log]): one[:2] for log, one in enumerate(self._logs.names)}
        order = sorted(nodes, key=lambda node: (name[node][0], str(name[node][1])))
        order.sort(key=lambda node: [natural(str(part)) for part in name[node]])
        return {node: (node, number, name[node][0], str(name[node][1])) for number, node in enumerate(order)}

    def _edges(self, found: Survey, start_s: float, end_s: float, kept: int) -> list[float]:
        """Times that cut the legs into files of about the same size."""
        inside = np.sort(found.clock_s[(found.clock_s > start_s) & (found.clock_s < end_s)])
        shares = np.arange(1, files_for(kept)) / files_for(kept)
        return np.unique(np.quantile(inside, shares) - start_s).tolist() if len(inside) and len(shares) else []

    def _write_nodes(self, known: dict[int, tuple[str, str]]) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        paths = sorted((self._scratch / "nodes").glob("*.npz"))
        parts = [np.load(path) for path in paths]
        sums = {name: np.concatenate([part[name] for part in parts]) for name in NODE_SUMS}
        order = np.argsort(sums["number"])
        columns: dict[str, Any] = {name: column[order] for name, column in sums.items()}
        told = [known[number] for number in columns["number"].tolist()]
        columns |= {name: pa.array([one[k] for one in told], pa.string()) for k, name in enumerate(("fleet", "node"))}
        table = pa.table({name: columns[name] for name in names(NODES)})
        pq.write_table(table, self._folder / "nodes" / "part-00000.parquet")
        return int(table.num_rows)

    def _close_rejected(self) -> None:
        """A table without rows is a table as well."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not any((self._folder / "rejected").iterdir()):
            kinds = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64()}
            empty = pa.schema([(one.name, kinds[one.kind]) for one in REJECTED]).empty_table()
            pq.write_table(empty, self._folder / "rejected" / "part-00000.parquet")

    def _sight(self, layout: Layout) -> Sight:
        parts = [np.load(path) for path in sorted((self._scratch / "sight").glob("*.npz"))]
        frame = layout.frame
        cells = np.zeros((frame.rows, frame.columns))
        for part in parts:
            cells.reshape(-1)[part["cells"]] += part["counts"]
        path = np.concatenate([part["path"] for part in parts])
        return Sight(cells, frame.extent_m, np.concatenate([part["tracks"] for part in parts]), ways(path))
