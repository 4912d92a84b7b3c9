"""The courier is a registered protocol while one of these tests runs."""

import sys
from pathlib import Path

import pytest

import carrycast.protocols

PACKAGES = Path(__file__).parent / "packages"


@pytest.fixture(autouse=True)
def _courier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrycast.protocols, "__path__", [*carrycast.protocols.__path__, str(PACKAGES)])
    monkeypatch.delitem(sys.modules, "carrycast.protocols.courier", raising=False)
