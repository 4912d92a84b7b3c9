"""Ingest: read files, clean and number their rows, and write a fleet's folder atomically."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from carrycast.analysis.fleets.cleaning import HINTS, MAX_CLOCK_ERROR_DAYS, MIN_RUN_ROWS, REASONS, CleaningRules
from carrycast.analysis.fleets.columns import DATES_FROM_S
from carrycast.analysis.fleets.formats import IngestFormat, format_named, format_of
from carrycast.analysis.fleets.inputs import FleetFile, RowCount, prepare_files, restore_file_names
from carrycast.analysis.fleets.logs import NANOSECONDS, read_csv_logs, read_parquet_logs
from carrycast.analysis.fleets.partitions import LogTable, Partitioner, number_logs, save_logs
from carrycast.analysis.fleets.picture import (
    PATHS,
    STEPS,
    PictureData,
    labeled_nodes,
    map_grid,
    path_lines,
    spread_evenly,
)
from carrycast.analysis.fleets.points import GPS_BEGAN_S, LATEST_S, ReadOptions, check_time_zone
from carrycast.analysis.fleets.schema import NODES, REJECTED, arrow_schema, column_names
from carrycast.analysis.fleets.staging import RowStager, lost_rows_error
from carrycast.analysis.fleets.summary import check_rows, date_text, summarize_fleet
from carrycast.analysis.fleets.survey import FleetNaming, FleetSurvey, choose_crs, find_clash, survey_files
from carrycast.analysis.fleets.tables import (
    MAX_NODES,
    NODE_SUMS,
    FleetLayout,
    PartitionCleaner,
    TableWriter,
    WrittenTables,
    file_count,
    fleet_facts,
    map_origin,
    natural_order,
    refuse_clash,
    refuse_wrong,
)
from carrycast.analysis.fleets.workers import refuse_full_disk, run_each
from carrycast.analysis.spark import check_shared_paths, session
from carrycast.errors import UserError, WorkError
from carrycast.sim.mobility import FACTS_FILE, LEGS_FOLDER, VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RAW_FOLDER = "raw"
CLEANING_BYTES_PER_ROW = 225
"""Measured: the columns of a partition, a sorted copy of them, and the flags of a step."""
MOST_SWAPPED = 0.01
"""If a larger share of rows is on earth only with longitude and latitude swapped, the columns are swapped."""


def ingest(
    paths: Sequence[Path],
    out: Path,
    source: ReadOptions | None = None,
    rules: CleaningRules | None = None,
    master: str | None = None,
) -> dict[str, Any]:
    """Make a fleet's folder from files; return the contents of `fleet.json`. A folder that is not empty is rejected."""
    source, rules = source or ReadOptions(), rules or CleaningRules()
    check_time_zone(source.time_zone)
    formats = _detect_formats(paths, source)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: is there already; give a new folder")
    # Java may have another working directory, so its paths are absolute.
    formats = {path.absolute(): one for path, one in formats.items()}
    if formats[paths[0].absolute()].kind == "contacts":
        from carrycast.analysis.fleets.contact_lists import ingest_contacts

        with atomic_folder(out) as folder:
            return ingest_contacts(formats, folder, source)
    with atomic_folder(out) as folder, _explain_spark_errors(out):
        spark = session("carrycast", master)
        check_shared_paths(spark, folder, *formats)
        scratch = folder / ".scratch"
        scratch.mkdir()
        inputs = prepare_files(formats, source, scratch)
        with restore_file_names(inputs):
            read = read_raw(spark, inputs, source, scratch)
        written, sight = _write_fleet(folder, spark, source, rules, read)
        if not written.legs:
            raise UserError(f"no node has two rows within {rules.gap_s:g} s, so none moves: see --gap and --columns")
        shutil.rmtree(scratch)
        facts = _make_facts(written, inputs, read, rules)
        facts["time_zone"] = (source.time_zone or "UTC") if read.zoneless else None
        check_rows(folder, facts)
        facts |= summarize_fleet(folder, facts)
        # Written after the tables: a folder without it is not a fleet.
        (folder / FACTS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2))
        from carrycast.analysis.fleets.page import write_fleet_page

        write_fleet_page(folder, facts, sight)
    return facts


def _detect_formats(paths: Sequence[Path], source: ReadOptions) -> dict[Path, IngestFormat]:
    if not paths:
        raise UserError("no files to ingest")
    for path in paths:
        if path.is_dir():
            raise UserError(f"{path}: is a folder: name its files, as in {path}/*")
        if not path.is_file():
            raise UserError(f"{path}: there is no such file")
    given = format_named(source.format) if source.format is not None else None
    formats = {path: given or format_of(path, source.encoding, source.header) for path in dict.fromkeys(paths)}
    if len({one.kind == "contacts" for one in formats.values()}) > 1:
        contacts = next(path for path, one in formats.items() if one.kind == "contacts")
        raise UserError(f"{contacts}: holds contacts, other files places: ingest them apart")
    if len({path.name for path in formats}) < len(formats):
        raise UserError("two of the files have the same name: rename one, so that what is rejected can be found again")
    return formats


class ReadFiles(NamedTuple):
    """The row counts of all files that were read."""

    counted: dict[str, RowCount]
    """The counts by file name."""
    unsaid: FleetFile | None
    """A file whose x and y are assumed to be meters, because the user does not say."""
    zoneless: bool
    """Whether a file has dates without a time zone."""

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(one.rows for one in self.counted.values())


def read_raw(spark: "SparkSession", inputs: Sequence[FleetFile], source: ReadOptions, scratch: Path) -> ReadFiles:
    """Write the rows of all files as RAW to the scratch folder, so that each file is parsed once.

    Raises a WorkError if a row of a file is missing.
    """
    import pyarrow.dataset as ds

    by_format: dict[str, list[FleetFile]] = {}
    for one in inputs:
        by_format.setdefault(one.format.name, []).append(one)
    to = scratch / RAW_FOLDER
    to.mkdir()
    counted: dict[str, RowCount] = {}
    staged, unsaid, zoneless = RowStager(source), None, False
    for name, same in by_format.items():
        if name not in ("csv", "parquet"):
            for index, one in enumerate(same):
                counted[one.name] = staged.stage(one, to / f"{name}-{index:05}.parquet")
            continue
        tables = (read_csv_logs if name == "csv" else read_parquet_logs)(spark, same, source)
        part = scratch / f"{RAW_FOLDER}-{name}"
        try:
            tables.rows.write.parquet(str(part))
        finally:
            spark.conf.unset(NANOSECONDS)
        rows = Counter[str]()
        for batch in ds.dataset(part, format="parquet").to_batches(columns=["file"]):
            for count in batch["file"].value_counts().to_pylist():
                rows[count["values"]] += count["counts"]
        for one in same:
            if tables.records[one.name] != rows[one.name]:
                raise lost_rows_error(one.name, tables.records[one.name], rows[one.name])
            counted[one.name] = RowCount(tables.records[one.name], rows[one.name])
        for index, path in enumerate(sorted(part.glob("*.parquet"))):
            path.rename(to / f"{name}-{index:05}.parquet")
        unsaid, zoneless = unsaid or tables.unsaid, zoneless or tables.zoneless
    return ReadFiles(counted, unsaid, zoneless)


def _write_fleet(
    folder: Path, spark: "SparkSession", source: ReadOptions, rules: CleaningRules, read: ReadFiles
) -> tuple[WrittenTables, PictureData]:
    """Survey and clean the rows, and write the tables."""
    files = sorted((folder / ".scratch" / RAW_FOLDER).glob("*.parquet"))
    naming = FleetNaming(source.fleet, source.by_file)
    found = survey_files(spark, files, naming)
    if found.rows != read.rows:
        raise lost_rows_error("the files", read.rows, found.rows)
    _refuse_doubtful(found, source, read)
    crs = None
    if found.in_degrees:
        center = found.find_center()
        if center is None:
            raise UserError(f"no row has a place on earth: {HINTS['no_place']}")
        crs = choose_crs(center, source.crs)
    alone = not (source.merge or source.by_file)
    logs, largest = number_logs(found.logs)
    _refuse_too_large(largest)
    passes = IngestPasses(spark, folder, rules, logs)
    passes.partition(files, naming, found, crs, alone)
    return passes.write_tables(crs, found)


def _refuse_doubtful(found: FleetSurvey, source: ReadOptions, read: ReadFiles) -> None:
    """Reject rows whose units, order or dates are wrong or ambiguous."""
    if not read.rows:
        raise UserError("the files have no rows: nothing follows the names of their columns")
    if not found.readable:
        example = f" (one is {found.example[:120]!r})" if found.example else ""
        raise UserError(f"none of the rows can be read{example}: {HINTS['unreadable']}")
    if 0 < found.in_degrees < found.readable:
        raise UserError("some files give degrees, others meters: ingest them apart, since nothing joins the two maps")
    if found.swappable > MOST_SWAPPED * found.readable and found.unswappable <= MOST_SWAPPED * found.swappable:
        answer = "leave out --swap" if source.swap else "give --swap"
        raise UserError(
            f"{found.swappable:,} of {found.readable:,} rows have a latitude beyond 90 degrees and would be on earth "
            f"with longitude and latitude swapped: {answer}"
        )
    if read.unsaid is not None and found.may_be_degrees:
        raise UserError(
            f"{read.unsaid.path}: x and y may be meters or degrees: say --columns x=x,y=y for meters, or "
            "--columns longitude=x,latitude=y for degrees"
        )
    if found.measured and (found.median_s >= LATEST_S or DATES_FROM_S <= found.median_s < GPS_BEGAN_S):
        raise UserError(
            f"most times lie around {date_text(found.median_s) or 'the year 2128 and later'}, where no receiver was: "
            "say what their numbers count, as in --time-unit ms, or how they are written, as in "
            "--time-format yyyyMMddHHmmss"
        )


def _refuse_too_large(rows: int) -> None:
    """Reject a node whose rows do not fit into memory, since all rows of a node are cleaned at once."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if rows * CLEANING_BYTES_PER_ROW > memory_bytes:
        raise UserError(
            f"a node has {rows:,} rows, which takes {rows * CLEANING_BYTES_PER_ROW / 1e9:.0f} GB of memory to clean: "
            "give each part of its log another name, or ingest it on a larger machine"
        )


class IngestPasses:
    """The passes over the rows of a fleet, each run on Spark: partition, clean, write."""

    def __init__(self, spark: "SparkSession", folder: Path, rules: CleaningRules, logs: LogTable) -> None:
        self._spark, self._folder, self._rules, self._logs = spark, folder, rules, logs
        self._scratch = folder / ".scratch"
        for name in ("partitions", "clean", "legs", "nodes", "picture"):
            (self._scratch / name).mkdir()
        for name in ("positions", "rejected", LEGS_FOLDER, "nodes"):
            (folder / name).mkdir()
        save_logs(logs, self._scratch)
        self._rejected = dict.fromkeys(REASONS, 0)

    def partition(
        self, files: Sequence[Path], naming: FleetNaming, found: FleetSurvey, crs: str | None, alone: bool
    ) -> None:
        """Write every row to its partition. With `alone`, a node that two files have at the same time is rejected."""
        partitioner = Partitioner(self._scratch, naming, found.median_s, crs)
        results = run_each(self._spark, partitioner.partition, [[k, str(path)] for k, path in enumerate(files)])
        self._rejected["unreadable"] += sum(one["unreadable"] for one in results)
        if not alone:
            return
        spans: dict[Any, tuple[float, float]] = {}
        for one in results:
            for log, low_s, high_s in one["spans"]:
                name = self._logs.names[log]
                known = spans.get(name, (low_s, high_s))
                spans[name] = (min(low_s, known[0]), max(high_s, known[1]))
        clashing = find_clash(spans)
        if clashing is not None:
            refuse_clash(*clashing)

    def write_tables(self, crs: str | None, found: FleetSurvey) -> tuple[WrittenTables, PictureData]:
        """Clean the partitions and write all tables."""
        partitions = range(int(self._logs.partition.max()) + 1)
        cleaned = run_each(self._spark, PartitionCleaner(self._scratch, self._rules).clean, list(partitions))
        for one in cleaned:
            for reason, count in one["rejected"].items():
                self._rejected[reason] += count
        rejected = {reason: count for reason, count in sorted(self._rejected.items()) if count}
        kept = sum(one["kept"] for one in cleaned)
        refuse_wrong(kept, rejected)
        self._close_rejected()
        ends = np.array([one["ends"] for one in cleaned if one["ends"] is not None])
        start_s, end_s = float(ends[:, 0].min()), float(ends[:, 1].max())
        box_m = [*ends[:, 2:4].min(axis=0).tolist(), *ends[:, 4:].max(axis=0).tolist()]
        origin_m = map_origin(box_m, crs)
        numbers = self._number_nodes([node for one in cleaned for node in one["nodes"]])
        west_m, south_m, east_m, north_m = (one - origin_m[k % 2] for k, one in enumerate(box_m))
        grid = map_grid(west_m, east_m, south_m, north_m)
        lasts_s = round(end_s - start_s, 6)
        edges_s = self._find_leg_edges(found, start_s, end_s, kept)
        step_s = max(lasts_s / STEPS, 1e-6)
        layout = FleetLayout(
            start_s, origin_m, self._rules.every_s, edges_s, grid, spread_evenly(len(numbers), PATHS), step_s
        )
        writing = TableWriter(self._scratch, layout)
        items = [[k, [numbers[node] for node in one["nodes"]]] for k, one in enumerate(cleaned) if one["nodes"]]
        positions = sum(run_each(self._spark, writing.write, items))
        gathered = run_each(self._spark, writing.gather, list(range(len(edges_s) + 1)))
        known = self._write_nodes({number: (fleet, node) for _, number, fleet, node in numbers.values()})
        legs = sum(one["legs"] for one in gathered)
        mixed = sum(int(one["digest"]) for one in gathered) % 2**64
        facts = {**fleet_facts(start_s, end_s, crs, origin_m, box_m), "nodes": known, "legs": legs}
        facts |= {"longest_leg_s": max(one["longest_leg_s"] for one in gathered), "digest": f"{mixed:X}-{legs}"}
        written = WrittenTables(kept, rejected, legs, None if self._rules.every_s is None else positions, facts)
        names = {number: name for _, number, _, name in numbers.values()}
        return written, self._picture_data(layout, names)

    def _number_nodes(self, nodes: Sequence[int]) -> dict[int, tuple[int, int, str, str]]:
        """Number the nodes that have a row, sorted by fleet and name in natural order."""
        if len(nodes) > MAX_NODES:
            raise UserError(f"more than {MAX_NODES} nodes; is the node's column the right one? See --columns")
        name = {int(self._logs.node[log]): one[:2] for log, one in enumerate(self._logs.names)}
        order = sorted(nodes, key=lambda node: (name[node][0], str(name[node][1])))
        order.sort(key=lambda node: [natural_order(str(part)) for part in name[node]])
        return {node: (node, number, name[node][0], str(name[node][1])) for number, node in enumerate(order)}

    def _find_leg_edges(self, found: FleetSurvey, start_s: float, end_s: float, kept: int) -> list[float]:
        """Find the times that cut the legs into files of about equal size."""
        inside = np.sort(found.clock_s[(found.clock_s > start_s) & (found.clock_s < end_s)])
        shares = np.arange(1, file_count(kept)) / file_count(kept)
        return np.unique(np.quantile(inside, shares) - start_s).tolist() if len(inside) and len(shares) else []

    def _write_nodes(self, known: dict[int, tuple[str, str]]) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        paths = sorted((self._scratch / "nodes").glob("*.npz"))
        parts = [np.load(path) for path in paths]
        sums = {name: np.concatenate([part[name] for part in parts]) for name in NODE_SUMS}
        order = np.argsort(sums["number"])
        columns: dict[str, Any] = {name: column[order] for name, column in sums.items()}
        names = [known[number] for number in columns["number"].tolist()]
        columns |= {name: pa.array([one[k] for one in names], pa.string()) for k, name in enumerate(("fleet", "node"))}
        table = pa.table({name: columns[name] for name in column_names(NODES)})
        pq.write_table(table, self._folder / "nodes" / "part-00000.parquet")
        return int(table.num_rows)

    def _close_rejected(self) -> None:
        """Write an empty table of rejected rows if there is none."""
        import pyarrow.parquet as pq

        if not any((self._folder / "rejected").iterdir()):
            pq.write_table(arrow_schema(REJECTED).empty_table(), self._folder / "rejected" / "part-00000.parquet")

    def _picture_data(self, layout: FleetLayout, names: dict[int, str]) -> PictureData:
        parts = [np.load(path) for path in sorted((self._scratch / "picture").glob("*.npz"))]
        grid = layout.grid
        cells = np.zeros((grid.rows, grid.columns))
        for part in parts:
            cells.reshape(-1)[part["cells"]] += part["counts"]
        path = np.concatenate([part["path"] for part in parts])
        tracks = np.concatenate([part["tracks"] for part in parts])
        shown = {number: names[number] for number in labeled_nodes(len(names))}
        return PictureData(cells, grid.extent_m, tracks, path_lines(path), shown)


def _make_facts(
    written: WrittenTables, inputs: Sequence[FleetFile], read: ReadFiles, rules: CleaningRules
) -> dict[str, Any]:
    return {
        "version": VERSION,
        **written.facts,
        "files": {one.name: one.format.name for one in inputs},
        "read": {one.name: read.counted[one.name].to_facts(one) for one in inputs},
        "rows": read.rows,
        "positions": written.kept,
        "rejected": written.rejected,
        "resampled": written.resampled,
        "rules": {**msgspec.to_builtins(rules), "clock_days": MAX_CLOCK_ERROR_DAYS, "least_run": MIN_RUN_ROWS},
    }


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `out` on success and deleted on failure."""
    out = out.absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    except OSError as error:
        raise UserError(f"--out {out}: cannot be made a folder: {error.strerror}") from None
    try:
        yield folder
        folder.chmod(0o755)
        if out.exists():
            out.rmdir()
        os.rename(folder, out)
    except OSError as error:
        raise WorkError(f"{out}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _explain_spark_errors(out: Path) -> Iterator[None]:
    """Turn Spark's errors about unreadable files and full disks into one line."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        refuse_full_disk(error, out)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by:")]
        reason = (causes or lines)[-1].removeprefix("Caused by:").strip()
        if "EOFException" in str(error) or "ZipException" in str(error):
            raise UserError(f"a gzip file is cut or broken; compress it again ({reason})") from None
        raise WorkError(f"the files could not be ingested: {reason}") from None
