"""What a report is drawn and written with: axes that show the data, legends that say what they are of, Markdown."""

import re
from pathlib import Path

import pytest

from carrycast.analysis.reports.figures import draw_figure
from carrycast.analysis.reports.page import block_html, inline_html
from carrycast.analysis.reports.style import value_limits
from carrycast.analysis.spark.definition import Axis, Definition, Figure
from carrycast.analysis.spark.experiment import expand_experiment
from carrycast.analysis.spark.records import Record
from carrycast.analysis.spark.results import Results
from tests.pipeline.scenarios import tiny


@pytest.mark.parametrize(
    ("ends", "y_from", "from_zero", "whole", "limits"),
    [
        ([97.0, 100.0], None, False, 0.0, (96.76, 100.24)),  # boxes at 97 to 100
        ([97.0, 100.0], None, True, 0.0, (0.0, 105.0)),  # bars, whose length is the amount
        ([97.0, 100.0], 90.0, False, 0.0, (90.0, 100.5)),
        ([0.2, 0.9], None, False, 1.0, (0.0, 1.05)),
        ([0.95, 0.99], None, False, 1.0, (0.9468, 0.9932)),
        ([-2.0, 8.0], None, True, 0.0, (-2.0, 8.5)),
        ([5.0], None, False, 0.0, (4.75, 5.25)),
        ([0.0], None, True, 0.0, (0.0, 1.05)),
        ([], None, False, 0.0, (0.0, 1.05)),
    ],
)
def test_an_axis_shows_the_data(
    ends: list[float], y_from: float | None, from_zero: bool, whole: float, limits: tuple[float, float]
) -> None:
    assert value_limits(ends, y_from, from_zero, whole) == pytest.approx(limits)


def test_the_interval_of_a_share_ends_where_shares_do_and_so_does_its_axis(tmp_path: Path) -> None:
    figure = Figure(name="reach", kind="line", x="range", y="delivery_ratio")
    axes = [Axis(name="range", key="radio.range_m", values=[100.0, 250.0])]
    experiment = expand_experiment(
        Definition(name="study", scenario=_table(), runs=3, axes=axes, figures=[figure]), tmp_path
    )
    records: list[Record] = [
        {"experiment": "study", "point": point.name, "seed": seed, "error": None, "delivery_ratio": value}
        for point in experiment.points
        for seed, value in ((1, 0.4), (2, 1.0), (3, 1.0))
    ]
    drawn = draw_figure(figure, Results(experiment, records, tmp_path))
    assert drawn is not None
    assert (drawn.rows[0]["low"], drawn.rows[0]["high"]) == (0.0, 1.0), "of few runs it would reach far beyond"
    labels = re.findall(rb"<!-- (\d\.\d) -->", drawn.svg)
    assert max(map(float, labels)) == 1.0


def test_a_legend_says_what_its_series_are_of(tmp_path: Path) -> None:
    axes = [
        Axis(name="p", key="protocol.p", values=[0.2, 1.0], title="chance to pass on"),
        Axis(name="range", key="radio.range_m", values=[100.0, 250.0]),
    ]
    figure = Figure(name="sent", kind="line", x="range", y="transmissions", series="p")
    table = {**_table(), "protocol": {"name": "gossip"}}
    experiment = expand_experiment(
        Definition(name="study", scenario=table, runs=1, axes=axes, figures=[figure]), tmp_path
    )
    records: list[Record] = [
        {"experiment": "study", "point": point.name, "seed": 1, "error": None, "transmissions": 90.0 + place}
        for place, point in enumerate(experiment.points)
    ]
    drawn = draw_figure(figure, Results(experiment, records, tmp_path))
    assert drawn is not None
    assert b"<!-- chance to pass on -->" in drawn.svg, "matplotlib writes each text as a comment beside its shapes"


def _table() -> dict[str, object]:
    import msgspec

    table: dict[str, object] = msgspec.to_builtins(tiny())
    table.pop("base")
    return table


def test_markdown_is_rendered_and_html_is_text() -> None:
    assert block_html("One `set`.\n\n- a\n- **b**") == (
        "<p>One <code>set</code>.</p>\n<ul>\n<li>a</li>\n<li><strong>b</strong></li>\n</ul>\n"
    )
    assert inline_html("received_per_sink is *new*") == "received_per_sink is <em>new</em>"
    assert inline_html("<b>x</b>") == "&lt;b&gt;x&lt;/b&gt;"
    assert "<img" not in inline_html("![a](http://x/y.png)")
    assert "href" not in inline_html("[a](javascript:alert(1))")
