"""A scenario and what varies in it, as an experiment without a file."""

from pathlib import Path

import pytest

from carrycast.analysis.spark.experiment import vary_scenario
from carrycast.errors import UserError
from tests.cli.console import QUICK


def test_all_combinations_of_what_varies() -> None:
    found = vary_scenario(
        QUICK, ["radio.range_m=100,200.5", "protocol=flooding,gossip:p=0.3"], ["duration_s=30"], runs=2
    )
    assert found.name == "quick"
    assert found.seeds == [1, 2]
    assert [point.name for point in found.points] == [
        "100 / flooding",
        "100 / gossip p=0.3",
        "200.5 / flooding",
        "200.5 / gossip p=0.3",
    ]
    assert [point.scenario.radio_model().range_m for point in found.points] == [100.0, 100.0, 200.5, 200.5]
    assert found.points[1].scenario.protocol == {"name": "gossip", "p": 0.3}
    assert {point.scenario.duration_s for point in found.points} == {30.0}
    assert [(figure.kind, figure.x, figure.series) for figure in found.definition.figures[:1]] == [
        ("line", "range_m", "protocol")
    ]


def test_words_are_drawn_as_bars_and_keys_that_end_alike_keep_their_whole_names() -> None:
    found = vary_scenario(QUICK, ["protocol=flooding,epidemic", "publish.0.nodes=1,2", "subscribe.0.nodes=3"])
    assert [axis.name for axis in found.definition.axes] == ["protocol", "publish-0-nodes", "subscribe-0-nodes"]
    assert {figure.kind for figure in found.definition.figures} == {"bars"}
    assert len(found.seeds) == 10


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        (["radio.range_m"], r"--vary: 'radio.range_m' is not of the form key=value,value"),
        (["radio.range_m="], r"--vary radio.range_m: has no value; write radio.range_m=1,2,3"),
        (["nodes=5,5"], r"two values are called the same"),
        (["nodes=5", "nodes=6"], r"--vary nodes: is there twice; give all its values at once"),
        (["radius=5"], r"radius: a scenario has no 'radius'"),
        (["nodes=five words"], r"--vary nodes: 'five words' is not a value"),
        (["protocol=nonsense"], r"nonsense"),
    ],
)
def test_what_cannot_vary_is_refused(axes: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        vary_scenario(QUICK, axes)


def test_a_file_that_is_no_scenario_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.toml: there is no such file"):
        vary_scenario(tmp_path / "none.toml", ["nodes=5,6"])
