"""Marks tests by what they need, so that `pytest -m 'not spark and not live'` runs anywhere."""

from pathlib import Path

import pytest

_LIVE = Path(__file__).parent / "live"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the `spark` fixture needs Spark, and everything below `tests/live` needs sockets."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if _LIVE in item.path.parents:
            item.add_marker(pytest.mark.live)
