"""One Spark session for all tests of the pipeline: starting one takes seconds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from driftcast.pipeline.session import session, stop


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores, so that the order of partitions is never certain."""
    yield session("driftcast tests", cores=2)
    stop()
