"""Fixtures of the tests of the command line."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.spark_session import session, stop_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that commands in this process find running; the tests of the pipeline use the same."""
    yield session("carrycast tests", cores=2)
    stop_session()
