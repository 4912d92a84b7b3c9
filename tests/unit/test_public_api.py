"""The public API: what `import carrycast` offers, with the signatures that a committed snapshot holds.

If a change is meant, `python -m tests.unit.test_public_api` writes the snapshot again; docs/stability.md says what may
change in which release.
"""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import carrycast

SNAPSHOT = Path(__file__).with_name("public_api.txt")
EXAMPLES = Path(__file__).parents[2] / "examples"


def signatures() -> list[str]:
    """A line for each public name, and for each public method of a public class."""
    lines = []
    for name in sorted(set(carrycast.__all__) - {"__version__"}):
        found = getattr(carrycast, name)
        if not inspect.isclass(found):
            lines.append(f"{name}{inspect.signature(found)}")
            continue
        bases = ", ".join(base.__name__ for base in found.__bases__ if base is not object)
        lines.append(f"class {name}({bases})" if bases else f"class {name}")
        own = {member for cls in found.__mro__ if cls.__module__.startswith("carrycast") for member in vars(cls)}
        for member in sorted(one for one in own if one == "__init__" or not one.startswith("_")):
            value = getattr(found, member)
            lines.append(f"  {name}.{member}{inspect.signature(value) if callable(value) else ''}")
    return lines


def test_the_signatures_are_those_of_the_snapshot() -> None:
    assert signatures() == SNAPSHOT.read_text().splitlines(), "see the docstring of this test"


def test_every_public_name_is_documented() -> None:
    for name in set(carrycast.__all__) - {"__version__"}:
        found = getattr(carrycast, name)
        assert inspect.getdoc(found), name
        if inspect.isclass(found) and found.__module__ == "carrycast.api":
            for member, value in vars(found).items():
                assert member.startswith("_") or not callable(value) or inspect.getdoc(value), f"{name}.{member}"


def test_completion_knows_the_public_names_and_nothing_else() -> None:
    assert set(dir(carrycast)) == set(carrycast.__all__)
    assert not hasattr(carrycast, "no_such_name")


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, carrycast; print(*sorted(name.split('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numpy", "pyarrow", "pyspark", "asyncio", "msgspec"} & set(done.stdout.split())


def test_a_simulation_is_a_table_for_other_libraries() -> None:
    result = carrycast.simulate(EXAMPLES / "quick.toml", level="metrics")
    table = result.to_arrow()
    assert table.column_names == ["metric", "value"]
    assert dict(zip(*table.to_pydict().values(), strict=True))["delivery_ratio"] == result.metrics["delivery_ratio"]
    assert "delivery_ratio" in result._repr_html_()
    assert len(result.to_pandas()) == len(result.metrics)


def test_a_scenario_becomes_a_page(tmp_path: Path) -> None:
    page = carrycast.show(EXAMPLES / "quick.toml", tmp_path / "folder" / "page.html", protocol="flooding")
    assert page.read_text().startswith("<!doctype html>")
    with pytest.raises(carrycast.UserError, match="recorded"):
        carrycast.show(tmp_path, protocol="flooding")


def test_a_trace_is_explained(tmp_path: Path) -> None:
    from carrycast.cli import main

    assert main(["run", str(EXAMPLES / "quick.toml"), "--trace", str(tmp_path / "trace")]) == 0
    found = carrycast.explain(tmp_path / "trace", "0:0", 1)
    assert found.node == 1


@pytest.mark.spark
def test_protocols_are_compared_and_varied(tmp_path: Path) -> None:
    found = carrycast.compare(EXAMPLES / "quick.toml", ["flooding", "gossip:p=0.5"], 2, out=tmp_path / "compare")
    assert found.protocols == ["flooding", "gossip p=0.5"]
    assert found.failed == 0
    assert found.report.is_file()
    assert {"protocol", "metric", "mean", "low", "high", "runs"} == set(found.to_arrow().column_names)
    swept = carrycast.sweep(EXAMPLES / "quick.toml", {"radio.range_m": [50, 100]}, 1, out=tmp_path / "sweep")
    assert swept.to_arrow().num_rows == 2
    assert swept.failed == 0


@pytest.mark.spark
def test_a_fleet_is_ingested_opened_and_asked_for_its_contacts(tmp_path: Path) -> None:
    fleet = carrycast.Fleet.ingest(EXAMPLES / "fleet" / "gps.csv", tmp_path / "fleet")
    assert fleet.nodes > 1
    assert carrycast.Fleet.open(tmp_path / "fleet").nodes == fleet.nodes
    assert fleet.contacts(range_m=250.0).nodes == fleet.nodes
    assert fleet.plot(tmp_path / "fleet.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(carrycast.UserError, match="no_such_option"):
        carrycast.Fleet.ingest("gps.csv", tmp_path / "other", no_such_option=1)
    with pytest.raises(carrycast.UserError, match="holds no fleet"):
        carrycast.Fleet(tmp_path)


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(signatures()) + "\n")
