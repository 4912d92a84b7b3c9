"""A scenario and what is to vary in it, as a command line says it: an experiment without a file."""

import re
from collections.abc import Sequence
from pathlib import Path

from carrycast.analysis.spark.definition import Axis, Definition, Figure
from carrycast.analysis.spark.experiment import Experiment, unfold
from carrycast.analysis.spark.validation import check
from carrycast.errors import UserError
from carrycast.sim.scenario.overrides import parse_assignment, parse_value
from carrycast.sim.scenario.protocol_text import parse_protocols
from carrycast.sim.scenario.scenario import load

RUNS = 10
"""As many as `compare` makes: enough for an interval, soon over."""
DRAWN = ("delivery_ratio", "delay_p50_s", "transmissions", "total_bytes")
_STRANGE = re.compile(r"[^A-Za-z0-9_-]+")


def varied(
    scenario: Path, axes: Sequence[str], settings: Sequence[str] = (), runs: int | None = None, where: str = "--vary"
) -> Experiment:
    """`radio.range_m=100,200,300` and others of this form, in all combinations; `settings` are for every point."""
    load(scenario)
    written = [_axis(text, where) for text in axes]
    keys = [key for key, _ in written]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise UserError(f"{where} {key}: is there twice; give all its values at once, as in {key}=1,2,3")
    made = [
        Axis(name=name, key=key, values=values, title=key)
        for name, (key, values) in zip(_names(keys), written, strict=True)
    ]
    definition = Definition(
        name=_STRANGE.sub("-", scenario.stem).strip("-_") or "scenario",
        title=f"{scenario.stem}: {', '.join(keys)}",
        scenario=str(scenario.resolve()),
        set=dict(parse_assignment(text) for text in settings),
        runs=RUNS,
        metrics=list(DRAWN),
        axes=made,
        figures=_figures(made),
    )
    check(definition, where)
    return unfold(definition, scenario.resolve().parent, runs=runs, where=where)


def _axis(text: str, where: str) -> tuple[str, list[object]]:
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
        # Words without quotes are no list in TOML.
        found = [parse_value(value, f"{where} {key}") for value in values.split(",")]
    assert isinstance(found, list)
    return key, found


def _names(keys: Sequence[str]) -> list[str]:
    """The last word of each key, where that tells them apart."""
    short = [key.rpartition(".")[2] for key in keys]
    return [
        one if short.count(one) == 1 and not one.isdecimal() else _STRANGE.sub("-", key)[-60:].strip("-_")
        for one, key in zip(short, keys, strict=True)
    ]


def _figures(axes: Sequence[Axis]) -> list[Figure]:
    """Each metric along the first axis, a line or a bar for each value of the second, a panel for each of the third."""
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
        for metric in DRAWN
    ]
