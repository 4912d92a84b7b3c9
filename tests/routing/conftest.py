"""The courier is a registered protocol while one of these tests runs."""

import sys
from pathlib import Path

import pytest

import driftcast.dissemination

PACKAGES = Path(__file__).parent / "packages"


@pytest.fixture(autouse=True)
def _courier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driftcast.dissemination, "__path__", [*driftcast.dissemination.__path__, str(PACKAGES)])
    monkeypatch.delitem(sys.modules, "driftcast.dissemination.courier", raising=False)
