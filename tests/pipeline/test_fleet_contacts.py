"""Contacts of a fleet on Spark equal those of one process, and form a plan that a scenario replays."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.fleets.contacts import fleet_contacts, save_plan
from carrycast.errors import UserError
from carrycast.sim.contacts.exact import compute_contacts
from carrycast.sim.contacts.plan import ContactPlan
from tests.unit.fleets.test_contacts import plan_rows
from tests.unit.fleets.worlds import DURATION_S, RANGE_M, WORLDS
from tests.unit.mobility.test_fleet import save

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("world", "legs_per_task"), [("wild", 60), ("sampled", 700)])
def test_spark_finds_the_contacts_of_one_process(
    spark: SparkSession, tmp_path: Path, world: str, legs_per_task: int
) -> None:
    moving = WORLDS[world]()
    save(tmp_path / "fleet", moving)
    found = fleet_contacts(spark, tmp_path / "fleet", RANGE_M, DURATION_S, legs_per_task)
    save_plan(found, moving.nodes, DURATION_S, tmp_path / "contacts.parquet")
    whole = compute_contacts(moving, RANGE_M, DURATION_S)
    assert plan_rows(ContactPlan.load(tmp_path / "contacts.parquet")) == plan_rows(whole)
    # Byte for byte the file that one process writes.
    whole.save(tmp_path / "one.parquet")
    assert pq.read_table(tmp_path / "contacts.parquet").equals(pq.read_table(tmp_path / "one.parquet"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["contacts.parquet", "fleet", "one.parquet"]


def test_every_task_is_solved_once(spark: SparkSession, tmp_path: Path) -> None:
    save(tmp_path / "fleet", WORLDS["sampled"]())
    found = fleet_contacts(spark, tmp_path / "fleet", RANGE_M, DURATION_S, 700)
    plan = found.orderBy("start_s")._jdf.queryExecution().executedPlan().toString()
    # The plan solves once and shuffles right after it, because Spark reads the input of a sort twice.
    assert plan.count("MapInArrow") == 1
    assert plan.index("rangepartitioning") < plan.index("hashpartitioning(a") < plan.index("MapInArrow")
    # The partitions of the join are as many as the tasks, so that their size does not grow.
    assert plan.count("hashpartitioning(a") == 1
    assert found.rdd.getNumPartitions() > 1


def test_a_range_must_be_one(spark: SparkSession, tmp_path: Path) -> None:
    save(tmp_path / "fleet", WORLDS["standing"]())
    with pytest.raises(UserError, match="positive range"):
        fleet_contacts(spark, tmp_path / "fleet", float(np.nan))
