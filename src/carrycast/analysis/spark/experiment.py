"""Experiments: load them by name or make them from command-line options, and expand them into points."""

import difflib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from carrycast.analysis.spark.definition import (
    Axis,
    Definition,
    Figure,
    QuickSettings,
    Selector,
    axis_labels,
    label_texts,
)
from carrycast.analysis.spark.own_metrics import OwnMetric, load_metrics
from carrycast.analysis.spark.records import METRICS
from carrycast.analysis.spark.sequential import Look, plan_looks
from carrycast.analysis.spark.validation import check_definition
from carrycast.core.settings import parse_settings, read_toml
from carrycast.errors import UserError
from carrycast.sim.scenario import (
    Scenario,
    apply_overrides,
    load_scenario,
    parse_assignment,
    parse_protocols,
    parse_scenario,
    parse_value,
)
from carrycast.trace import more_metrics

FILE = "experiment.toml"
HOOK = "claims.py"
FOLDER = Path(__file__).parents[1] / "experiments"
_NOT_INHERITED = ("name", "aliases", "headline")
"""Keys of an experiment that do not hold for one that extends it."""
MOST_RUNS = 100_000
"""The limit for one point, as in `Definition.runs`."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of settings. Every seed runs once at every point."""

    name: str
    labels: dict[str, str]
    values: dict[str, object]
    scenario: Scenario

    def matches(self, selector: Selector) -> bool:
        """Whether this point belongs to a selection."""
        return all(self.labels.get(axis) in label_texts(wanted) for axis, wanted in selector.items())


@dataclass(frozen=True)
class Experiment:
    """A checked definition with its points and seeds."""

    definition: Definition
    points: list[Point]
    seeds: list[int]
    hook: Path | None = None
    """The Python file with the claims that cannot be written as data."""
    own: tuple[OwnMetric, ...] = ()
    """Metrics over traces that the files of the experiment register."""
    own_files: tuple[Path, ...] = ()
    used: Mapping[str, int] = field(default_factory=dict)
    """The largest number of runs so far, by point, if points stop when their claims are decided."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.definition.name

    @property
    def metrics(self) -> list[str]:
        """Every metric of the runs."""
        asked = (asked.name for asked in self.definition.measures)
        return [*METRICS, *more_metrics("flow" in self.definition.scenario), *asked, *(own.name for own in self.own)]

    def seeds_at(self, point: Point) -> list[int]:
        """Return the seeds of a point: all, unless the definition limits its runs or its claims are decided."""
        limits = [fewer.runs for fewer in self.definition.fewer if point.matches(fewer.where)]
        if point.name in self.used:
            limits.append(self.used[point.name])
        return self.seeds[: min(limits)] if limits else self.seeds

    @property
    def looks(self) -> list[Look]:
        """The looks at the claims, if points stop when their claims are decided."""
        return plan_looks(len(self.seeds)) if self.definition.stop_when_decided else []

    def axis(self, name: str) -> Axis:
        """Return the axis of that name."""
        return next(axis for axis in self.definition.axes if axis.name == name)

    def labels(self, axis: str) -> list[str]:
        """Return the labels of an axis that occur at some point, in the order of the file."""
        present = {point.labels[axis] for point in self.points}
        return [label for label in axis_labels(self.axis(axis)) if label in present]


def experiment_names() -> list[str]:
    """Return the names of the experiments that come with carrycast."""
    return sorted(_find_built_in())


def _find_built_in() -> dict[str, Path]:
    """Return the files of built-in experiments by name. A file may state a name that is no valid name of a Python
    package."""
    paths = sorted(FOLDER.glob(f"*/{FILE}"))
    return {str(read_toml(path).get("name", path.parent.name)): path for path in paths}


def load_experiment(text: str, quick: bool = False, runs: int | None = None) -> Experiment:
    """Load an experiment by name, alias, folder or file. `name/figure` is only that figure, its points and its
    claims."""
    path, figure = _locate(text)
    definition = read_definition(path)
    if figure:
        definition = _select_figure(definition, figure, path)
    experiment = expand_experiment(definition, path.parent, quick, runs, _find_hook(path), str(path))
    experiment = add_own_metrics(experiment, path.parent)
    return _prune_points(experiment) if figure else experiment


def _find_hook(path: Path) -> Path | None:
    """Return the claims.py of an experiment: its own, or that of the experiment that it extends."""
    if path.name != FILE:
        return None
    hook = path.parent / HOOK
    if hook.is_file():
        return hook
    extended = read_toml(path).get("extends")
    return _find_hook(path.parent / extended) if isinstance(extended, str) else None


def _read_table(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, object]:
    """Read the keys of an experiment file, with those of the file that it extends."""
    table = read_toml(path)
    extends = table.get("extends", "")
    if not isinstance(extends, str) or not extends:
        return table
    base_path = path.parent / extends
    chain = (*extended_by, path.resolve())
    if base_path.resolve() in chain:
        raise UserError(f"{path}: extends: {extends} extends this file")
    base = _read_table(base_path, chain)
    for key in _NOT_INHERITED:
        base.pop(key, None)
    if isinstance(base.get("scenario"), str):
        base["scenario"] = str((base_path.parent / str(base["scenario"])).resolve())
    base["metrics_from"] = [
        str((base_path.parent / str(name)).resolve()) for name in _as_list(base.get("metrics_from"))
    ]
    both = (base.get("set", {}), table.get("set", {}))
    merged = {**base, **table}
    if all(isinstance(one, dict) for one in both):
        merged["set"] = {key: value for one in both if isinstance(one, dict) for key, value in one.items()}
    return merged


def _as_list(written: object) -> list[object]:
    return list(written) if isinstance(written, list) else []


def read_definition(path: Path) -> Definition:
    """Read an experiment file and check it as far as possible without its scenario."""
    table = _read_table(path)
    table.setdefault("name", path.absolute().parent.name if path.name == FILE else path.stem)
    definition = parse_settings(table, Definition, str(path))
    own = load_metrics(metric_files(definition, path.parent), [asked.name for asked in definition.measures])
    check_definition(definition, str(path), [one.name for one in own])
    return definition


def metric_files(definition: Definition, folder: Path) -> list[Path]:
    """Return the files of metrics that a definition names."""
    names = [Path(text).name for text in definition.metrics_from]
    if len(set(names)) < len(names):
        raise UserError(f"{folder}: metrics_from: two files are called the same")
    return [folder / text for text in definition.metrics_from]


def add_own_metrics(experiment: Experiment, folder: Path) -> Experiment:
    """Return the experiment with the metrics that its files register."""
    files = metric_files(experiment.definition, folder)
    own = load_metrics(files, [asked.name for asked in experiment.definition.measures])
    return replace(experiment, own=tuple(own), own_files=tuple(files))


def expand_experiment(
    definition: Definition,
    folder: Path,
    quick: bool = False,
    runs: int | None = None,
    hook: Path | None = None,
    where: str = "experiment",
) -> Experiment:
    """Expand a definition into points and seeds."""
    if runs is not None and runs < 1:
        raise UserError(f"--runs {runs}: at least one run is needed")
    if runs is not None and runs > MOST_RUNS:
        raise UserError(f"--runs {runs}: at most {MOST_RUNS} of each point are run")
    shorter = definition.quick if quick else QuickSettings()
    seeds = definition.seeds or list(range(1, definition.runs + 1))
    wanted = runs or shorter.runs
    if wanted is not None:
        seeds = definition.seeds[:wanted] if definition.seeds else list(range(1, wanted + 1))
    base = _load_base_scenario(definition.scenario, folder, where)
    points = []
    for labels in _combine_labels(definition, shorter):
        points.append(_make_point(definition, base, labels, shorter.set, folder, where))
    return Experiment(definition, points, seeds, hook)


def _make_point(
    definition: Definition,
    scenario: Scenario,
    labels: dict[str, str],
    shorter: Mapping[str, object],
    folder: Path,
    where: str,
) -> Point:
    values: dict[str, object] = {}
    overrides: dict[str, object] = {**definition.set}
    for axis in definition.axes:
        value = values[axis.name] = axis.values[axis_labels(axis).index(labels[axis.name])]
        key = axis.key or axis.name
        if key == "scenario":
            scenario = _load_base_scenario(value, folder, f"{where}: axes.{axis.name}")
        elif key == "set":
            if not isinstance(value, dict):
                raise UserError(f"{where}: axes.{axis.name}: with key = 'set' every value is a table of settings")
            overrides |= value
        else:
            overrides[key] = value
    if definition.measures:
        overrides["measure.more"] = msgspec.to_builtins([*scenario.measure.more, *definition.measures])
    name = " / ".join(labels.values())
    at = f"{where}: at {name}"
    return Point(
        name=name, labels=labels, values=values, scenario=apply_overrides(scenario, {**overrides, **shorter}, at)
    )


def _load_base_scenario(written: object, folder: Path, where: str) -> Scenario:
    if isinstance(written, str):
        return load_scenario((folder / written).resolve())
    if not isinstance(written, dict):
        raise UserError(f"{where}: a scenario is a file name or a table")
    return parse_scenario({**written, "base": str(folder.resolve())}, f"{where}: scenario")


def _combine_labels(definition: Definition, quick: QuickSettings) -> list[dict[str, str]]:
    kept = {axis: label_texts(labels) for axis, labels in quick.axes.items()}
    names = [axis.name for axis in definition.axes]
    if definition.points is None:
        product = itertools.product(*(axis_labels(axis) for axis in definition.axes))
        made = [dict(zip(names, labels, strict=True)) for labels in product]
    else:
        made = _list_points(definition)
    return [labels for labels in made if all(labels[axis] in wanted for axis, wanted in kept.items())]


def _list_points(definition: Definition) -> list[dict[str, str]]:
    """Return the points that a definition lists, each once. Lists give all combinations; an unnamed axis its
    default."""
    made: dict[tuple[str, ...], dict[str, str]] = {}
    for entry in definition.points or []:
        wanted = {
            axis.name: label_texts(entry.get(axis.name, "" if axis.default is None else axis.default))
            for axis in definition.axes
        }
        for labels in itertools.product(*wanted.values()):
            made[labels] = dict(zip(wanted, labels, strict=True))
    return list(made.values())


def _locate(text: str) -> tuple[Path, str]:
    given = Path(text)
    if given.is_dir():
        return given / FILE, ""
    if given.suffix == ".toml" or given.is_file():
        return given, ""
    name, _, figure = text.partition("/")
    shipped = _find_built_in()
    if name in shipped:
        return shipped[name], figure
    for path in shipped.values():
        if name in read_definition(path).aliases:
            return path, figure
    close = difflib.get_close_matches(name, shipped, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    there = ", ".join(sorted(shipped)) or "none"
    raise UserError(f"there is no experiment {text!r}: {hint}there are {there}; or give a folder or a .toml file")


def _select_figure(definition: Definition, figure: str, path: Path) -> Definition:
    figures = [entry for entry in definition.figures if entry.name == figure]
    if not figures:
        there = ", ".join(entry.name for entry in definition.figures) or "none"
        raise UserError(f"{path}: there is no figure {figure!r}; there are {there}")
    claims = [entry for entry in definition.claims if entry.figure == figure]
    return msgspec.structs.replace(definition, figures=figures, claims=claims)


def _prune_points(experiment: Experiment) -> Experiment:
    """Return the experiment without the points that no figure shows and no claim names."""
    definition = experiment.definition
    shown = [selector for figure in definition.figures for selector in (figure.where, *figure.also)]
    for claim in definition.claims:
        shown += claim.selectors
    points = [point for point in experiment.points if any(point.matches(selector) for selector in shown)]
    return replace(experiment, points=points)


DEFAULT_RUNS = 10
"""The same as for `compare`: enough for a confidence interval, and soon finished."""
FIGURE_METRICS = ("delivery_ratio", "delay_p50_s", "transmissions", "total_bytes")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def vary_scenario(
    scenario: Path, axes: Sequence[str], settings: Sequence[str] = (), runs: int | None = None, where: str = "--vary"
) -> Experiment:
    """Make an experiment from axes such as `radio.range_m=100,200,300`; `settings` apply to every point."""
    load_scenario(scenario)
    written = [_parse_axis(text, where) for text in axes]
    keys = [key for key, _ in written]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise UserError(f"{where} {key}: is there twice; give all its values at once, as in {key}=1,2,3")
    made = [
        Axis(name=name, key=key, values=values, title=key)
        for name, (key, values) in zip(_axis_names(keys), written, strict=True)
    ]
    definition = Definition(
        name=_UNSAFE.sub("-", scenario.stem).strip("-_") or "scenario",
        title=f"{scenario.stem}: {', '.join(keys)}",
        scenario=str(scenario.resolve()),
        set=dict(parse_assignment(text) for text in settings),
        runs=DEFAULT_RUNS,
        metrics=list(FIGURE_METRICS),
        axes=made,
        figures=_make_figures(made),
    )
    check_definition(definition, where)
    return expand_experiment(definition, scenario.resolve().parent, runs=runs, where=where)


def _parse_axis(text: str, where: str) -> tuple[str, list[object]]:
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"{where}: {text!r} is not of the form key=value,value, such as radio.range_m=100,200,300")
    if key == "protocol":
        return key, list(parse_protocols(values, f"{where} {key}"))
    if not values.strip():
        raise UserError(f"{where} {key}: has no value; write {key}=1,2,3")
    try:
        found = parse_value(f"[{values}]", where)
    except UserError:
        # Unquoted words are no TOML list.
        found = [parse_value(value, f"{where} {key}") for value in values.split(",")]
    assert isinstance(found, list)
    return key, found


def _axis_names(keys: Sequence[str]) -> list[str]:
    """Return names for axes: the last part of each key where that is unique, else the whole key."""
    short = [key.rpartition(".")[2] for key in keys]
    return [
        one if short.count(one) == 1 and not one.isdecimal() else _UNSAFE.sub("-", key)[-60:].strip("-_")
        for one, key in zip(short, keys, strict=True)
    ]


def _make_figures(axes: Sequence[Axis]) -> list[Figure]:
    """Make a figure per metric: along the first axis, a series for each value of the second, a panel for each of the
    third."""
    first, second, third = [*axes, None, None][:3]
    assert first is not None
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in first.values)
    return [
        Figure(
            name=metric,
            kind="line" if numbers else "bars",
            x=first.name,
            y=metric,
            series=None if second is None else second.name,
            panels=None if third is None else third.name,
        )
        for metric in FIGURE_METRICS
    ]
