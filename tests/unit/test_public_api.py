"""The public API: what `import carrycast` offers, with the signatures that a committed snapshot holds.

If a change is meant, `python -m tests.unit.test_public_api` writes the snapshot again; docs/stability.md says what may
change in which release.
"""

import doctest
import importlib
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
        if inspect.isclass(found) and found.__module__.startswith("carrycast.api"):
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
    assert str(found).startswith("Event 0:0 for node 1")
    result = carrycast.simulate(EXAMPLES / "quick.toml", level="full")
    assert carrycast.explain(result, "0:0", 1).text.splitlines()[1:] == found.text.splitlines()[1:]
    with pytest.raises(carrycast.UserError, match='level="full"'):
        carrycast.explain(carrycast.simulate(EXAMPLES / "quick.toml"), "0:0", 1)


@pytest.mark.spark
def test_protocols_are_compared_and_varied(tmp_path: Path) -> None:
    found = carrycast.compare(EXAMPLES / "quick.toml", ["flooding", "gossip:p=0.5"], 2, out=tmp_path / "compare")
    assert found.protocols == ["flooding", "gossip p=0.5"]
    assert found.failed == 0
    assert found.report.is_file()
    assert {"protocol", "metric", "mean", "low", "high", "runs"} == set(found.to_arrow().column_names)
    axes: dict[str, list[object]] = {"radio.range_m": [50, 100], "protocol": ["flooding", "gossip:p=0.5"]}
    swept = carrycast.sweep(EXAMPLES / "quick.toml", axes, 1, out=tmp_path / "sweep")
    assert swept.to_arrow().num_rows == 4
    assert swept.failed == 0
    means = swept.means("delivery_ratio")
    assert {(row["range_m"], row["protocol"]) for row in means} == {
        (range_m, protocol) for range_m in (50, 100) for protocol in ("flooding", "gossip p=0.5")
    }
    assert all(isinstance(row["mean"], float) for row in means)
    (ax,) = swept.plot(y="transmissions").axes
    assert ax.get_xlabel() == "range_m"
    assert swept.plot(x="radio.range_m", series="protocol").axes
    with pytest.raises(carrycast.UserError, match="'speed' is no axis of this sweep"):
        swept.plot(x="speed")


@pytest.mark.spark
def test_a_fleet_is_ingested_opened_and_asked_for_its_contacts(tmp_path: Path) -> None:
    fleet = carrycast.Fleet.ingest(EXAMPLES / "fleet" / "gps.csv", tmp_path / "fleet")
    assert fleet.nodes > 1
    assert carrycast.Fleet.open(tmp_path / "fleet").nodes == fleet.nodes
    assert fleet.contacts(range_m=250.0).nodes == fleet.nodes
    assert fleet.plot(tmp_path / "fleet.png").png == (tmp_path / "fleet.png").read_bytes()
    with pytest.raises(carrycast.UserError, match="no_such_option"):
        carrycast.Fleet.ingest("gps.csv", tmp_path / "other", no_such_option=1)
    with pytest.raises(carrycast.UserError, match="holds no fleet"):
        carrycast.Fleet(tmp_path)


def test_metrics_have_the_names_of_the_one_too() -> None:
    metrics = carrycast.simulate(EXAMPLES / "quick.toml", level="metrics").metrics
    assert metrics["delivery_prob"] == metrics["delivery_ratio"]
    assert metrics["latency_med"] == metrics["delay_p50_s"]
    forwards, delivered = metrics["forwards"], metrics["delivered"]
    assert forwards is not None
    assert delivered
    assert metrics["overhead_ratio"] == (forwards - delivered) / delivered
    assert "delivery_prob" not in list(metrics)
    with pytest.raises(KeyError):
        metrics["buffertime_avg"]


def test_a_run_in_which_nothing_arrives_has_no_overhead() -> None:
    result = carrycast.simulate(EXAMPLES / "quick.toml", settings={"radio.range_m": 0.1})
    assert result.metrics["delivered"] == 0
    assert result.metrics["overhead_ratio"] is None
    assert result.plot().axes


def test_the_delays_of_a_simulation_are_those_of_its_metrics() -> None:
    result = carrycast.simulate(EXAMPLES / "ferries.toml", protocol="epidemic")
    assert len(result.delays_s()) == result.metrics["delivered"]
    assert sum(result.delays_s()) / len(result.delays_s()) == pytest.approx(result.metrics["delay_mean_s"])


@pytest.mark.parametrize("kind", ["pdf", "svg", "png"])
def test_a_figure_is_written_for_a_paper(kind: str, tmp_path: Path) -> None:
    result = carrycast.simulate(EXAMPLES / "quick.toml")
    figure = result.plot(tmp_path / "folder" / f"delivery.{kind}")
    written = (tmp_path / "folder" / f"delivery.{kind}").read_bytes()
    assert figure._repr_png_().startswith(b"\x89PNG")
    if kind == "svg":
        # As text, so that editors of papers can search and restyle it.
        assert b"time since publication" in written
    result.plot(tmp_path / f"again.{kind}")
    assert (tmp_path / f"again.{kind}").read_bytes() == written


def test_a_figure_in_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(carrycast.UserError, match=r"\.pdf, \.png, \.svg"):
        carrycast.simulate(EXAMPLES / "quick.toml").plot(tmp_path / "figure.docx")


def comparison() -> carrycast.ComparisonResult:
    rows = [
        {"protocol": protocol, "metric": metric, "mean": mean, "low": low, "high": high, "runs": 5}
        for protocol, metric, mean, low, high in [
            ("flooding", "delivery_ratio", 0.5, 0.4, 0.6),
            ("flooding", "total_bytes", 12_000.0, 11_000.0, 13_000.0),
            ("gossip_p", "delivery_ratio", 0.25, None, None),
            ("gossip_p", "total_bytes", None, None, None),
        ]
    ]
    return carrycast.ComparisonResult("quick", ["flooding", "gossip_p"], rows, ["flooding wins <"], [], Path("x.html"))


def test_a_comparison_is_a_latex_table() -> None:
    text = comparison().to_latex(["delivery_ratio", "total_bytes"])
    assert text.splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"protocol & delivery ratio & all on the air (kB) \\",
        r"\midrule",
        r"flooding & 0.50 $\pm$ 0.10 & 12.0 $\pm$ 1.0 \\",
        r"gossip\_p & 0.250 & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    with pytest.raises(carrycast.UserError, match="'no_such' is none of delivery_ratio"):
        comparison().to_latex(["no_such"])


def test_a_comparison_is_drawn_and_shown_in_notebooks() -> None:
    labels = [ax.get_xlabel() for ax in comparison().plot(metrics=["delivery_ratio", "total_bytes"]).axes]
    assert labels == ["delivery ratio", "all on the air (kB)"]
    assert "flooding wins &lt;" in comparison()._repr_html_()
    with pytest.raises(carrycast.UserError, match="width: 'wide'"):
        comparison().plot(metrics=["delivery_ratio"], width="wide")  # type: ignore[arg-type]


def test_an_example_is_found_by_its_name(tmp_path: Path) -> None:
    assert carrycast.example("quick") == EXAMPLES / "quick.toml"
    assert carrycast.example("fleet/gps.csv").is_file()
    with pytest.raises(carrycast.UserError, match=r"there is no example 'quack'; the scenarios are .*quick"):
        carrycast.example("quack")


WITH_EXAMPLES = (
    *(f"carrycast.api.{name}" for name in ("examples", "fleet", "functions", "results")),
    *("carrycast.core.matching.errors", "carrycast.core.matching.filter", "carrycast.core.model.event"),
    *("carrycast.errors", "carrycast.node.embedded"),
)
SHOWN_ELSEWHERE = {
    "AdviceResult": "advise",
    "ComparisonResult": "compare",
    "Contacts": "Fleet",
    "Explanation": "explain",
    "SweepResult": "sweep",
    "ConnectionLostError": "docs/python-client.md",
    "NotAuthorizedError": "docs/access.md",
    "connect": "docs/python-client.md",
    "connect_async": "docs/python-client.md",
}
"""Names whose examples are those of a function, or stand on a page, since they need a node that runs."""


def test_every_public_name_has_an_example() -> None:
    for name in carrycast.__all__:
        value = getattr(carrycast, name)
        if name not in SHOWN_ELSEWHERE and callable(value):
            assert ">>>" in (inspect.getdoc(value) or ""), name
    assert set(SHOWN_ELSEWHERE) <= set(carrycast.__all__)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_of_the_docstrings_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = importlib.import_module(module)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(found, extraglobs={"tmp_path": tmp_path}, optionflags=options)
    assert result.failed == 0
    assert result.attempted > 0


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(signatures()) + "\n")
