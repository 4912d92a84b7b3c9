"""A router's README lists every reason for a drop, each of which some test hits."""

import inspect
import re
from pathlib import Path

import pytest

import carrycast.routers
from carrycast.core.parts import TableRouter
from carrycast.core.protocol.registry import find_router, router_names


def folder(name: str) -> Path:
    return Path(carrycast.routers.__path__[0]) / name


@pytest.mark.parametrize("name", router_names())
def test_it_lists_every_reason_for_a_drop(name: str) -> None:
    sources = [path.read_text() for path in folder(name).glob("*.py")]
    if issubclass(find_router(name), TableRouter):
        sources.append(Path(inspect.getfile(TableRouter)).read_text())
    pattern = r'(?:drop|_?drop_packet|_end_packet)\((?:[^()"]|\([^()]*\))*"(\w+)"|reason="(\w+)"'
    reasons = {one or other for source in sources for one, other in re.findall(pattern, source)}
    listed = set(re.findall(r"`(\w+)`", (folder(name) / "README.md").read_text().split("## Drops by name")[1]))
    assert len(reasons) >= 4
    assert reasons <= listed
    tested = "".join(path.read_text() for path in (folder(name) / "tests").glob("*.py"))
    tested += "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    assert [reason for reason in sorted(reasons) if f'"{reason}"' not in tested] == []
