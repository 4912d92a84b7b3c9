"""A comparison in a sentence: who delivers more, by how much, at what price, and when nothing is decided."""

import math
from collections.abc import Mapping

from carrycast.analysis.reports.tables import told_apart
from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.statistics import FEWEST, Interval

NONE = Interval(0, None, None, None)
PLACES = 2
"""Of a ratio, as people read it; more where two would show no difference."""
Found = Mapping[tuple[str, str], Interval]
"""(point, metric) -> mean or difference, and its interval."""


def sentences(experiment: Experiment, means: Found, differences: Found) -> list[str]:
    """Each point of an experiment beside its reference."""
    found = []
    for point, reference in reference_pairs(experiment):
        more = differences.get((point, "delivery_ratio"), NONE)
        frames, other = (means.get((name, "transmissions"), NONE) for name in (point, reference))
        found.append(sentence(point, reference, more, frames, other))
    return found


def reference_pairs(experiment: Experiment) -> list[tuple[str, str]]:
    """Each point and the one that differs from it in having the first label of the reference's axis."""
    axis = experiment.definition.reference
    if not axis:
        return []
    first = experiment.labels(axis)[0]
    named = {tuple(point.labels.items()): point.name for point in experiment.points}
    pairs = [
        (point.name, named.get(tuple({**point.labels, axis: first}.items()), ""))
        for point in experiment.points
        if point.labels[axis] != first
    ]
    return [(point, reference) for point, reference in pairs if reference]


def sentence(protocol: str, reference: str, more: Interval, frames: Interval, reference_frames: Interval) -> str:
    """What is to be said of a protocol beside the reference: `more` is its paired difference in delivery."""
    if more.mean is None:
        return f"Nothing can be said of {protocol} beside {reference}: no run of both had anything to deliver."
    price = _price(frames, reference_frames)
    if more.low is None or more.high is None:
        if more.mean == 0 and more.n >= FEWEST:
            return f"{protocol} delivers as much as {reference} in each of {_runs(more.n)}{price}."
        (text,) = told_apart([abs(more.mean)], PLACES)
        found = f"{protocol} delivers {_amount(more.mean, text)} than {reference} in {_runs(more.n)}{price}"
        return f"{found}; that decides nothing yet: ask for more with --runs."
    ends = (more.low, more.high) if more.mean >= 0 else (-more.high, -more.low)
    text, *shown = told_apart([abs(more.mean), *ends], PLACES)
    within = f"({shown[0]} to {shown[1]})"
    if more.low <= 0 <= more.high:
        found = f"{protocol} delivers {_amount(more.mean, text)} {within} in {_runs(more.n)}{price}"
        return f"Between {protocol} and {reference} nothing is decided: {found}; more runs may tell."
    return f"{protocol} delivers {_amount(more.mean, text)} {within} than {reference}{price}."


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def _amount(mean: float, text: str) -> str:
    return f"{text} {'more' if mean > 0 else 'less'}" if mean else "neither more nor less"


def _price(frames: Interval, reference: Interval) -> str:
    if frames.mean is None or reference.mean is None:
        return ""
    if reference.mean == 0:
        return "" if frames.mean == 0 else f", with {frames.mean:,.0f} frames instead of none"
    times = frames.mean / reference.mean
    if math.isclose(times, 1, rel_tol=0.05):
        return ", with as many frames"
    return f", with {times:,.0f} times the frames" if times >= 9.5 else f", with {times:.2g} times the frames"
