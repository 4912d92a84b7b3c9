"""From files to a fleet's folder: read, cleaned, numbered, and written whole or not at all."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from carrycast.analysis.fleets.buckets import NODE_ROWS, numbered_logs
from carrycast.analysis.fleets.cleaning import DAY_S, HINTS, Rules, cleaned
from carrycast.analysis.fleets.columns import DATES_FROM_S
from carrycast.analysis.fleets.dealt import Passes
from carrycast.analysis.fleets.formats import Format, format_named, format_of
from carrycast.analysis.fleets.inputs import SUFFIXES, Counted, Input, Source, named, prepare
from carrycast.analysis.fleets.logs import NANOSECONDS, csv_rows, parquet_rows
from carrycast.analysis.fleets.points import GPS_BEGAN_S, LATEST_S
from carrycast.analysis.fleets.projection import map_for, projected
from carrycast.analysis.fleets.schema import POSITIONS, RAW, ddl, names
from carrycast.analysis.fleets.staging import Staged, uncounted
from carrycast.analysis.fleets.summary import check_rows, moment, summary_of
from carrycast.analysis.fleets.survey import Naming, Survey, clash, survey
from carrycast.analysis.fleets.tables import Written, refuse_clash, write_tables
from carrycast.analysis.fleets.workers import refuse_full_disk, spark_path
from carrycast.analysis.spark.cluster.executors import check_shared_paths
from carrycast.analysis.spark.session import session
from carrycast.errors import UserError, WorkError
from carrycast.sim.mobility.fleet import FACTS_FILE, VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from carrycast.analysis.fleets.picture import Sight

RAW_FOLDER = "raw"
MOST_SWAPPED = 0.01
"""Of rows that are on earth only with longitude and latitude swapped: fewer are glitches of receivers."""


def ingest(
    paths: Sequence[Path],
    out: Path,
    source: Source | None = None,
    rules: Rules | None = None,
    master: str | None = None,
) -> dict[str, Any]:
    """Make a fleet's folder of files; returns what `fleet.json` says. A folder that is not empty is refused."""
    source, rules = source or Source(), rules or Rules()
    formats = _formats(paths, source)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: is there already; give a new folder")
    # Java was started in some folder, perhaps another than this one: what it reads is named in full.
    formats = {path.absolute(): one for path, one in formats.items()}
    if formats[paths[0].absolute()].kind == "contacts":
        from carrycast.analysis.fleets.contact_lists import ingest_contacts

        with unfinished(out) as folder:
            return ingest_contacts(formats, folder, source)
    with unfinished(out) as folder, _told(out):
        spark = session("carrycast", master)
        check_shared_paths(spark, folder, *formats)
        scratch = folder / ".scratch"
        scratch.mkdir()
        inputs = prepare(formats, source, scratch)
        with named(inputs):
            read = read_raw(spark, inputs, source, scratch)
        written, sight = _cleaned_into(folder, spark, source, rules, read)
        if not written.legs:
            raise UserError("no node is told twice within a gap, so none moves: see --gap and --columns")
        shutil.rmtree(scratch)
        facts = _facts(written, inputs, read, rules)
        check_rows(folder, facts)
        facts |= summary_of(folder, facts)
        # The last of all: a folder without it is no fleet.
        (folder / FACTS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2))
        from carrycast.analysis.fleets.page import write_page

        write_page(folder, facts, sight)
    return facts


def _formats(paths: Sequence[Path], source: Source) -> dict[Path, Format]:
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


class Read(NamedTuple):
    """What readers found."""

    counted: dict[str, Counted]
    """By the names of files."""
    unsaid: Input | None
    """A file whose x and y are taken for meters though nobody says so."""

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(one.rows for one in self.counted.values())


def read_raw(spark: "SparkSession", inputs: Sequence[Input], source: Source, scratch: Path) -> Read:
    """The rows of all files as RAW, in the scratch folder: logs are parsed once. All rows of a file are there, or a
    WorkError says that they are not."""
    import pyarrow.dataset as ds

    by_format: dict[str, list[Input]] = {}
    for one in inputs:
        by_format.setdefault(one.format.name, []).append(one)
    to = scratch / RAW_FOLDER
    to.mkdir()
    counted: dict[str, Counted] = {}
    staged, unsaid = Staged(source), None
    for name, same in by_format.items():
        if name not in ("csv", "parquet"):
            for index, one in enumerate(same):
                counted[one.name] = staged.stage(one, to / f"{name}-{index:05}.parquet")
            continue
        tables = (csv_rows if name == "csv" else parquet_rows)(spark, same, source)
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
                raise uncounted(one.name, tables.records[one.name], rows[one.name])
            counted[one.name] = Counted(tables.records[one.name], rows[one.name])
        for index, path in enumerate(sorted(part.glob("*.parquet"))):
            path.rename(to / f"{name}-{index:05}.parquet")
        unsaid = unsaid or tables.unsaid
    return Read(counted, unsaid)


def _cleaned_into(
    folder: Path, spark: "SparkSession", source: Source, rules: Rules, read: Read
) -> "tuple[Written, Sight]":
    """Clean the rows and write the tables."""
    files = sorted((folder / ".scratch" / RAW_FOLDER).glob("*.parquet"))
    naming = Naming(source.fleet, source.by_file)
    found = survey(spark, files, naming)
    if found.rows != read.rows:
        raise uncounted("the files", read.rows, found.rows)
    _refuse_doubtful(found, source, read)
    crs = None
    if found.in_degrees:
        center = found.center()
        if center is None:
            raise UserError(f"no row has a place on earth: {HINTS['no_place']}")
        crs = map_for(center, source.crs)
    alone = not (source.merge or source.by_file)
    logs, most = numbered_logs(found.logs)
    if most > NODE_ROWS:
        return _by_spark(folder, _raw(spark, folder, source), rules, found.median_s, crs, alone)
    passes = Passes(spark, folder, rules, logs)
    passes.deal(files, naming, found, crs, alone)
    return passes.tables(crs, found)


def _refuse_doubtful(found: Survey, source: Source, read: Read) -> None:
    """Refuse rows that mean something else than they seem to, or that may."""
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
            f"most times lie around {moment(found.median_s) or 'the year 2128 and later'}, where no receiver was: say "
            "what their numbers count, as in --time-unit ms, or how they are written, as in "
            "--time-format yyyyMMddHHmmss"
        )


def _raw(spark: "SparkSession", folder: Path, source: Source) -> "DataFrame":
    from pyspark.sql import functions as f

    raw = spark.read.schema(ddl(RAW)).parquet(spark_path(folder / ".scratch" / RAW_FOLDER))
    fleet = f.regexp_replace("file", SUFFIXES, "") if source.by_file else f.lit(source.fleet)
    return raw.withColumn("fleet", f.coalesce("fleet", fleet)).select(*names(RAW))


def _by_spark(
    folder: Path, raw: "DataFrame", rules: Rules, median_s: float, crs: str | None, alone: bool
) -> "tuple[Written, Sight]":
    """With windows of Spark, which keep on disk what they have no room for: any number of rows of one node."""
    from pyspark.sql import functions as f

    from carrycast.analysis.fleets.picture import sight_of

    if alone:
        # A receiver without a clock says 0 in every file: that is no meeting of two nodes.
        near = f.abs(f.col("clock_s") - median_s) <= rules.clock_days * DAY_S
        _refuse_clashes(raw.where("text is null").where(near | f.col("stated").isNotNull()))
    if crs is not None:
        raw = projected(raw, crs)
    written = write_tables(folder, cleaned(raw, rules, median_s), rules, crs)
    positions = raw.sparkSession.read.schema(ddl(POSITIONS)).parquet(spark_path(folder / "positions"))
    return written, sight_of(positions, written.facts)


def _refuse_clashes(readable: "DataFrame") -> None:
    """Refuse a name that two files have at the same time."""
    from pyspark.sql import functions as f

    spans = readable.groupBy("fleet", "node", "file").agg(f.min("clock_s").alias("low"), f.max("clock_s").alias("high"))
    clashing = clash({(row[0], row[1], row[2]): (row[3], row[4]) for row in spans.collect()})
    if clashing is not None:
        refuse_clash(*clashing)


def _facts(written: Written, inputs: Sequence[Input], read: Read, rules: Rules) -> dict[str, Any]:
    return {
        "version": VERSION,
        **written.facts,
        "files": {one.name: one.format.name for one in inputs},
        "read": {one.name: read.counted[one.name].facts(one) for one in inputs},
        "rows": read.rows,
        "positions": written.kept,
        "rejected": written.rejected,
        "resampled": written.resampled,
        "rules": msgspec.to_builtins(rules),
    }


@contextmanager
def unfinished(out: Path) -> Iterator[Path]:
    """A folder beside the place of another, which it becomes at the end; nothing stays of what does not end well."""
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
def _told(out: Path) -> Iterator[None]:
    """What Spark has to say of a file that it cannot read, or of a disk that is full, in one line."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        refuse_full_disk(error, out)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by:")]
        told = (causes or lines)[-1].removeprefix("Caused by:").strip()
        if "EOFException" in str(error) or "ZipException" in str(error):
            raise UserError(f"a gzip file is cut or broken; compress it again ({told})") from None
        raise WorkError(f"the files could not be ingested: {told}") from None
