"""Experiments: found, read, checked, unfolded."""

from pathlib import Path

import pytest

from carrycast.analysis.spark.experiment import FOLDER, experiment_names, load_experiment
from carrycast.errors import UserError

EXPERIMENT = """
runs = 3
metrics = ["delivery_ratio"]

[scenario]
duration_s = 10.0
nodes = 3
mobility = { model = "line", spacing_m = 50.0 }
protocol = { name = "gossip" }

[[axes]]
name = "p"
key = "protocol.p"
values = [0.25, 0.5, 1.0]

[[axes]]
name = "range"
key = "radio.range_m"
values = [60.0, 120.0]
labels = ["near", "far"]

[quick]
runs = 1
axes.p = [0.25, 1.0]
set = { duration_s = 5.0 }
"""


def written(tmp_path: Path, text: str = EXPERIMENT) -> str:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return str(path)


def test_the_points_are_the_product_of_the_axes(tmp_path: Path) -> None:
    experiment = load_experiment(written(tmp_path))
    assert experiment.name == "study"
    assert experiment.seeds == [1, 2, 3]
    assert [point.name for point in experiment.points] == [
        "0.25 / near",
        "0.25 / far",
        "0.5 / near",
        "0.5 / far",
        "1 / near",
        "1 / far",
    ]
    last = experiment.points[-1]
    assert last.scenario.protocol["p"] == 1.0
    assert last.scenario.radio_model().range_m == 120.0
    assert last.values == {"p": 1.0, "range": 120.0}


def test_quick_runs_less_of_everything(tmp_path: Path) -> None:
    experiment = load_experiment(written(tmp_path), quick=True)
    assert experiment.seeds == [1]
    assert [point.labels["p"] for point in experiment.points] == ["0.25", "0.25", "1", "1"]
    assert experiment.points[0].scenario.duration_s == 5.0
    assert load_experiment(written(tmp_path), quick=True, runs=2).seeds == [1, 2]


def test_points_can_be_listed_instead(tmp_path: Path) -> None:
    text = 'points = [{ p = 0.5, range = "far" }, { p = 1.0, range = "near" }]\n' + EXPERIMENT
    assert [point.name for point in load_experiment(written(tmp_path, text)).points] == ["0.5 / far", "1 / near"]


def test_listed_points_take_defaults_and_of_lists_every_combination_once(tmp_path: Path) -> None:
    listed = 'points = [{ p = [0.5, 1.0] }, { p = 0.5, range = ["near", "far"] }]\n'
    text = listed + EXPERIMENT.replace('labels = ["near", "far"]', 'labels = ["near", "far"]\ndefault = "near"')
    points = load_experiment(written(tmp_path, text)).points
    assert [point.name for point in points] == ["0.5 / near", "1 / near", "0.5 / far"]
    with pytest.raises(UserError, match=r"points\[0\]: needs a label for each axis without a default: range"):
        load_experiment(written(tmp_path, listed + EXPERIMENT))
    with pytest.raises(UserError, match=r"axes\[1\].default: 'nowhere' is none of near, far"):
        load_experiment(written(tmp_path, text.replace('default = "near"', 'default = "nowhere"')))


def test_a_folder_brings_its_scenarios_and_its_claims(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    scenario = (
        'duration_s = 9.0\nnodes = 2\nmobility = { model = "line", spacing_m = 5.0 }\nprotocol.name = "flooding"\n'
    )
    (folder / "short.toml").write_text(scenario)
    (folder / "long.toml").write_text(scenario.replace("9.0", "99.0"))
    axes = '[[axes]]\nname = "length"\nkey = "scenario"\nvalues = ["short.toml", "long.toml"]\n'
    (folder / "experiment.toml").write_text('scenario = "short.toml"\n' + axes)
    (folder / "claims.py").write_text("def claims(results): return []\n")
    experiment = load_experiment(str(folder))
    assert [(point.name, point.scenario.duration_s) for point in experiment.points] == [("short", 9.0), ("long", 99.0)]
    assert experiment.hook == folder / "claims.py"
    assert experiment.name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("runs = 3", "runs = 0", ": runs: Expected `int` >= 1 (it is 0)"),
        ("runs = 3", "rnus = 3", ": unknown key 'rnus'; did you mean 'runs'? allowed: aliases, axes, claims"),
        ('["delivery_ratio"]', '["delivery"]', ": metrics[0]: 'delivery' is not a metric; did you mean 'delivered'?"),
        ('labels = ["near", "far"]', 'labels = ["near"]', ": axes[1].labels: 2 values need as many labels"),
        ('labels = ["near", "far"]', 'labels = ["x", "x"]', ": axes[1].labels: two values are called the same"),
        ("axes.p = [0.25, 1.0]", "axes.p = [0.3]", ": quick.axes.p: '0.3' is none of 0.25, 0.5, 1"),
        ("axes.p = [0.25, 1.0]", "axes.q = [1]", ": quick.axes: 'q' is not an axis; there are p, range"),
        ('"protocol.p"', '"protocol.q"', ": at 0.25 / near: protocol: unknown key 'q'; allowed: jitter_s,"),
        ("[60.0, 120.0]", "[60.0, -1.0]", ": at 0.25 / far: radio.range_m: Expected `float` > 0.0 (it is -1.0)"),
        ("nodes = 3", "nodes = 'x'", ": scenario: nodes: Expected `int`, got `str` (it is 'x')"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in EXPERIMENT
    path = written(tmp_path, EXPERIMENT.replace(old, new, 1))
    with pytest.raises(UserError) as error:
        load_experiment(path)
    assert str(error.value).startswith(path + told)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[[figures]]\nname = "f"\nkind = "line"\nx = "q"\ny = "delivered"', ": figures[0].x: 'q' is not an axis"),
        ('[[figures]]\nname = "f"\nkind = "line"\nx = "p"\ny = "q"', ": figures[0].y: 'q' is not a metric"),
        (
            '[[figures]]\nname = "f"\nkind = "over_time"',
            ": figures[0].kind: over_time is drawn from traces; set trace =",
        ),
        ('[headline]\nmetrics = ["q"]', ": headline.metrics[0]: 'q' is not a metric"),
        ('[headline]\nmetrics = ["delivered"]\nfigure = "f"', ": headline.figure: 'f' is none of none"),
        (
            '[[figures]]\nname = "f"\nkind = "pie"',
            ": figures[0].kind: 'pie' is none of 'line', 'bars', 'tradeoff', 'over_time'",
        ),
        (
            '[[claims]]\nstatement = "s"\nkind = "trend"\nmetric = "delivered"\nalong = "p"',
            ": claims[0].direction: a trend is 'rising' or 'falling'",
        ),
        ('[[claims]]\nstatement = "s"\nkind = "bound"\nmetric = "delivered"', ": claims[0].relation: is needed"),
        (
            '[[claims]]\nstatement = "s"\nkind = "compare"\nmetric = "delivered"\nrelation = ">"\nleft = { p = 1.0 }',
            ": claims[0]: a comparison needs both left and right",
        ),
        (
            '[[claims]]\nstatement = "s"\nkind = "bound"\nmetric = "delivered"\nrelation = ">"\nof = { range = "mid" }',
            ": claims[0].of.range: 'mid' is none of near, far",
        ),
    ],
)
def test_figures_and_claims_are_checked_before_any_run(tmp_path: Path, more: str, told: str) -> None:
    path = written(tmp_path, EXPERIMENT + more)
    with pytest.raises(UserError) as error:
        load_experiment(path)
    assert str(error.value).startswith(path + told)


def test_an_experiment_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(UserError) as error:
        load_experiment("baseline")
    assert str(error.value).startswith("there is no experiment 'baseline': did you mean 'baselines'? there are ")
    with pytest.raises(UserError, match=r"nowhere\.toml: there is no such file"):
        load_experiment("nowhere.toml")


def test_a_figure_can_be_asked_for_alone() -> None:
    experiment = load_experiment("baselines/cost")
    assert [figure.name for figure in experiment.definition.figures] == ["cost"]
    assert {claim.figure for claim in experiment.definition.claims} == {"cost"}
    with pytest.raises(UserError, match="there is no figure 'x'; there are islands, delivery, over-time, cost, bytes"):
        load_experiment("baselines/x")


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_that_comes_with_carrycast_can_be_unfolded(name: str) -> None:
    for quick in (False, True):
        experiment = load_experiment(name, quick=quick)
        assert experiment.points
        assert experiment.definition.claims or experiment.hook is not None
        assert experiment.definition.figures


def test_the_examples_are_the_settings_of_the_baselines() -> None:
    examples = Path(__file__).parents[2] / "examples"
    for name in ("dense.toml", "sparse.toml"):
        assert (examples / name).read_text() == (FOLDER / "baselines" / name).read_text()


EXTENSION = """
name = "longer"
extends = "base/experiment.toml"
runs = 2

[set]
duration_s = 20.0
"""


def write_extension(tmp_path: Path, text: str = EXTENSION) -> Path:
    """An experiment that extends another one in a folder below it, whose scenario is a file."""
    base = tmp_path / "base"
    base.mkdir()
    scenario, rest = EXPERIMENT.split("[scenario]\n")[1].split("\n\n", 1)
    (base / "field.toml").write_text(scenario)
    head = 'name = "short"\naliases = ["first"]\nscenario = "field.toml"\nset = { nodes = 4 }\n'
    (base / "experiment.toml").write_text(head + EXPERIMENT.split("[scenario]\n", maxsplit=1)[0] + rest)
    (base / "claims.py").write_text("def claims(results):\n    return []\n")
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    return path


def test_an_experiment_that_extends_another_has_its_points_claims_and_merged_settings(tmp_path: Path) -> None:
    path = write_extension(tmp_path)
    base, longer = load_experiment(str(tmp_path / "base")), load_experiment(str(path))
    assert [point.labels for point in longer.points] == [point.labels for point in base.points]
    assert (longer.name, longer.seeds, longer.definition.aliases) == ("longer", [1, 2], [])
    assert {point.scenario.duration_s for point in longer.points} == {20.0}
    assert {point.scenario.nodes for point in longer.points} == {4}
    assert {point.scenario.duration_s for point in base.points} == {10.0}
    assert base.hook is not None
    assert longer.hook is not None
    assert longer.hook.resolve() == base.hook.resolve()


def test_an_experiment_that_extends_itself_is_refused(tmp_path: Path) -> None:
    path = write_extension(tmp_path)
    with (tmp_path / "base" / "experiment.toml").open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write('extends = "../experiment.toml"\n' + text)
    with pytest.raises(UserError, match="extends this file"):
        load_experiment(str(path))


def test_a_file_to_extend_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = write_extension(tmp_path, EXTENSION.replace("base/experiment.toml", "other/experiment.toml"))
    with pytest.raises(UserError, match=r"other/experiment\.toml"):
        load_experiment(str(path))
