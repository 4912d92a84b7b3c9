"""Marks tests by what they need, so that `pytest -m 'not spark and not live'` runs anywhere."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import hatch_build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LIVE = Path(__file__).parent / "live"

# A change is judged by the same examples every time; whoever runs the tests by hand explores further.
settings.register_profile("judged", derandomize=True, deadline=None)
settings.register_profile("exploring", deadline=None)
settings.load_profile("judged" if os.environ.get("CI") else "exploring")


def pytest_configure(config: pytest.Config) -> None:
    """Build the native core if its sources have changed, where there is a compiler. Workers find it built."""
    if not hasattr(config, "workerinput") and not hatch_build.is_current():
        hatch_build.build_in_place()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the `spark` fixture needs Spark, and everything below `tests/live` needs sockets."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if _LIVE in item.path.parents:
            item.add_marker(pytest.mark.live)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One session for all tests, since starting one takes seconds; on two cores, so that the order of partitions is
    never certain."""
    from carrycast.analysis.spark.spark_session import session, stop_session

    yield session("carrycast tests", cores=2)
    stop_session()
