"""The contact plan of a fleet's folder: in this process where it fits, else on Spark."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from carrycast.analysis.fleets.workers import refuse_full_disk
from carrycast.errors import UserError, WorkError
from carrycast.sim.contacts.exact import contacts
from carrycast.sim.contacts.plan import VERSION, VERSION_KEY, ContactPlan
from carrycast.sim.mobility.fleet import Fleet, FleetFacts
from carrycast.sim.mobility.model import Area

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Legs up to which one process is quicker than Spark's start, and needs less than a gigabyte.
ON_SPARK_FROM_LEGS = 2_000_000


def save_fleet_plan(
    folder: Path, range_m: float, duration_s: float | None, to: Path, master: str | None = None
) -> ContactPlan:
    """Write the contacts of a fleet to a file and read it again. With a master, or for a large fleet, on Spark."""
    facts = FleetFacts.read(folder)
    lasts_s = facts.duration_s if duration_s is None else duration_s
    if master is None and facts.legs < ON_SPARK_FROM_LEGS:
        rng = np.random.default_rng(0)  # a recording draws nothing
        moving = Fleet(folder=str(folder)).trajectories(facts.nodes, Area(1.0, 1.0), lasts_s, rng)
        contacts(moving, range_m, lasts_s).save(to)
    else:
        from carrycast.analysis.fleets.contacts import fleet_contacts
        from carrycast.analysis.spark.cluster.executors import check_shared_paths
        from carrycast.analysis.spark.session import session

        with _told(to):
            spark = session("carrycast", master)
            check_shared_paths(spark, folder, to.absolute().parent)
            save_plan(fleet_contacts(spark, folder, range_m, lasts_s), facts.nodes, lasts_s, to)
    return ContactPlan.load(to)


def save_plan(found: "DataFrame", nodes: int, duration_s: float, to: Path) -> None:
    """Write a table of contacts as the file of a plan, in its order; whole or not at all, a batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    to = to.absolute()
    scratch = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-"))
    try:
        found.orderBy("start_s", "a", "b").write.parquet(str(scratch / "parts"))
        kinds = [("a", pa.int64()), ("b", pa.int64()), ("start_s", pa.float64()), ("end_s", pa.float64())]
        metadata = {"nodes": str(nodes), "duration_s": repr(float(duration_s)), VERSION_KEY: VERSION}
        schema = pa.schema(kinds, metadata=metadata)
        with pq.ParquetWriter(scratch / "whole", schema) as writer:
            # Spark numbers its files in the order of the rows.
            for part in sorted((scratch / "parts").glob("part-*")):
                for batch in pq.ParquetFile(part).iter_batches():
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        os.replace(scratch / "whole", to)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _told(to: Path) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        refuse_full_disk(error, to)
        told = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        if told and "UserError: " in told[-1]:
            raise UserError(told[-1].partition("UserError: ")[2]) from None
        reason = (told or str(error).strip().splitlines())[-1]
        raise WorkError(f"{to}: the contacts could not be computed: {reason}") from None
    except OSError as error:
        raise WorkError(f"{to}: the contact plan could not be written: {error.strerror or error}") from None
