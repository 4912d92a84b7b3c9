"""Checks of an experiment beyond the types of its keys. Errors name the file, the key and the allowed values."""

import difflib
from collections.abc import Sequence

from carrycast.analysis.spark.definition import Definition, Figure, Selector, axis_labels, label_text, label_texts
from carrycast.errors import UserError
from carrycast.sim.scenario import metric_meanings


def check_definition(definition: Definition, where: str, own: Sequence[str] = ()) -> None:
    """Raise a UserError if a definition is inconsistent. `own` are the names of the metrics that its files register."""
    if definition.metrics_from and definition.trace == "metrics":
        raise UserError(f"{where}: metrics_from: is computed from traces; set trace = 'full' or 'deliveries'")
    known = [*metric_meanings(), *(asked.name for asked in definition.measures), *own]
    names = [axis.name for axis in definition.axes]
    for place, axis in enumerate(definition.axes):
        labels = axis_labels(axis)
        if len(labels) != len(axis.values):
            raise UserError(f"{where}: axes[{place}].labels: {len(axis.values)} values need as many labels")
        if len(set(labels)) != len(labels):
            raise UserError(f"{where}: axes[{place}].labels: two values are called the same")
        if axis.name in names[:place]:
            raise UserError(f"{where}: axes[{place}].name: {axis.name!r} is there twice")
        if axis.default is not None and label_text(axis.default) not in labels:
            raise UserError(f"{where}: axes[{place}].default: {axis.default!r} is none of {', '.join(labels)}")
    for place, point in enumerate(definition.points or []):
        needed = [axis.name for axis in definition.axes if axis.default is None and axis.name not in point]
        if needed:
            raise UserError(
                f"{where}: points[{place}]: needs a label for each axis without a default: {', '.join(needed)}"
            )
        _check_selector(definition, point, f"{where}: points[{place}]")
    for axis_name, kept in definition.quick.axes.items():
        _check_selector(definition, {axis_name: kept}, f"{where}: quick.axes")
    for place, fewer in enumerate(definition.fewer):
        _check_selector(definition, fewer.where, f"{where}: fewer[{place}].where")
    for place, metric in enumerate(definition.metrics):
        _check_metric(known, metric, f"{where}: metrics[{place}]")
    for metric in definition.rare:
        _check_metric(known, metric, f"{where}: rare")
    _check_figures(definition, known, where)
    _check_headline(definition, known, where)
    if definition.reference:
        _check_axis(definition, definition.reference, f"{where}: reference")
    _check_claims(definition, known, where)


def _check_figures(definition: Definition, known: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for place, figure in enumerate(definition.figures):
        at = f"{where}: figures[{place}]"
        if figure.name in seen:
            raise UserError(f"{at}.name: {figure.name!r} is there twice")
        seen.add(figure.name)
        _check_selector(definition, figure.where, f"{at}.where")
        for key in ("series", "panels"):
            axis = getattr(figure, key)
            if axis is not None:
                _check_axis(definition, axis, f"{at}.{key}")
        if figure.kind == "map":
            _check_places(definition, figure, at)
            continue
        if figure.kind == "over_time":
            if definition.trace == "metrics":
                raise UserError(f"{at}.kind: over_time is drawn from traces; set trace = 'deliveries'")
            continue
        if figure.kind == "timeline":
            for metric in (figure.y, *figure.metrics):
                _check_sampled(definition, metric, at)
            continue
        if figure.kind in ("box", "runs", "overview"):
            if not figure.metrics:
                raise UserError(f"{at}.metrics: is needed: a list of metrics")
            for metric in figure.metrics:
                _check_metric(known, metric, f"{at}.metrics")
        else:
            _check_metric(known, figure.y, f"{at}.y")
        if figure.kind == "line" and figure.metrics:
            for metric in figure.metrics:
                _check_metric(known, metric, f"{at}.metrics")
            if figure.series is not None:
                raise UserError(f"{at}.metrics: a line is either of one of several metrics or of one of a series")
        if figure.kind == "tradeoff":
            _check_metric(known, figure.x, f"{at}.x")
        elif figure.kind not in ("histogram", "runs"):
            _check_axis(definition, figure.x, f"{at}.x")


def _check_places(definition: Definition, figure: Figure, where: str) -> None:
    """Check that the places of a map belong to existing panels."""
    axes = [axis for axis in definition.axes if axis.name == figure.panels]
    known = axis_labels(axes[0]) if axes else [""]
    for panel in figure.places:
        if panel not in known:
            raise UserError(f"{where}.places: {panel!r} is none of {', '.join(known) or 'the panels'}")


def _check_sampled(definition: Definition, metric: str, where: str) -> None:
    sampled = [asked.name for asked in definition.measures if asked.counts == "probe"]
    if metric not in sampled:
        there = ", ".join(sampled) or "none"
        raise UserError(
            f"{where}: {metric!r} is not sampled over time; of the measures that count a probe there are {there}"
        )


def _check_headline(definition: Definition, known: Sequence[str], where: str) -> None:
    headline = definition.headline
    if headline is None:
        return
    for place, metric in enumerate(headline.metrics):
        _check_metric(known, metric, f"{where}: headline.metrics[{place}]")
    figures = [figure.name for figure in definition.figures]
    if headline.figure and headline.figure not in figures:
        raise UserError(f"{where}: headline.figure: {headline.figure!r} is none of {', '.join(figures) or 'none'}")


def _check_claims(definition: Definition, known: Sequence[str], where: str) -> None:
    figures = ["", *(figure.name for figure in definition.figures)]
    for place, claim in enumerate(definition.claims):
        at = f"{where}: claims[{place}]"
        _check_metric(known, claim.metric, f"{at}.metric")
        if claim.figure not in figures:
            raise UserError(f"{at}.figure: {claim.figure!r} is none of {', '.join(figures[1:]) or 'none'}")
        for key in ("left", "right", "of"):
            _check_selector(definition, getattr(claim, key), f"{at}.{key}")
        if claim.kind == "trend":
            _check_axis(definition, claim.along, f"{at}.along")
            if claim.direction is None:
                raise UserError(f"{at}.direction: a trend is 'rising' or 'falling'")
        elif claim.relation is None:
            raise UserError(f"{at}.relation: is needed: one of >, >=, <, <=, =")
        if claim.kind == "compare" and (not claim.left or not claim.right):
            raise UserError(f"{at}: a comparison needs both left and right")


def _check_axis(definition: Definition, axis: str, where: str) -> None:
    names = [entry.name for entry in definition.axes]
    if axis not in names:
        raise UserError(f"{where}: {axis!r} is not an axis; there are {', '.join(names)}")


def _check_selector(definition: Definition, selector: Selector, where: str) -> None:
    for axis, wanted in selector.items():
        _check_axis(definition, axis, where)
        labels = axis_labels(next(entry for entry in definition.axes if entry.name == axis))
        for label in label_texts(wanted):
            if label not in labels:
                raise UserError(f"{where}.{axis}: {label!r} is none of {', '.join(labels)}")


def _check_metric(known: Sequence[str], metric: str, where: str) -> None:
    if metric not in known:
        close = difflib.get_close_matches(metric, known, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(f"{where}: {metric!r} is not a metric; {hint}there are {', '.join(known)}")
