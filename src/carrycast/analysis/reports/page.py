"""The page of a report: one self-contained HTML file, with a light and a dark theme."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.reports.citation import citation_section
from carrycast.analysis.reports.css import CSS
from carrycast.analysis.reports.figures import DrawnFigure
from carrycast.analysis.reports.style import metric_label, metric_scale
from carrycast.analysis.reports.tables import interval_texts, mean_text, number_text
from carrycast.analysis.spark import (
    Axis,
    Claim,
    Experiment,
    Interval,
    Point,
    PointRuns,
    Record,
    stop_sentence,
)
from carrycast.sim.scenario import metric_meanings

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    # Pages load nothing from the network, so images are disabled; HTML in a text is escaped.
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def block_html(text: str) -> str:
    """Render Markdown with paragraphs, lists and tables."""
    found: str = _parser().render(text.strip())
    return found.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")


def inline_html(text: str) -> str:
    """Render inline Markdown: code, emphasis and links."""
    found: str = _parser().renderInline(" ".join(text.split()))
    return found


_MARKS = {True: ("holds", "✓"), False: ("fails", "✗"), None: ("undecided", "?")}
_VERDICTS = {
    "holds": "the whole 95 % interval of the runs lies where the statement wants it, its tolerance included.",
    "fails": "no part of the interval does.",
    "undecided": "part of it does, or there are too few runs for an interval, or all are alike. More runs may decide.",
    "alone": "decided, but only on its own. If all claims of the experiment must be right together with 95 % "
    "confidence, it is undecided (Holm's method), because among many claims some are decided by chance.",
    "calibration": "a setting was fitted to this number, so its agreement proves nothing. It is not counted.",
    "required": "the range that the interval is compared with. For a comparison, the difference between its two sides, "
    "seed by seed. The tolerance, if there is one, widens the range.",
    "paper": "the number in the paper, if it has one.",
    "measured": "the mean over the runs, or over the differences between runs with the same seed.",
    "95 % interval": "the confidence interval of the measured mean: it contains the true mean with 95 % confidence.",
}


def claims_table(claims: Sequence[Claim]) -> str:
    """Render a table with a row for each claim."""
    rows = "".join(map(_claim_row, claims))
    return (
        '<p class="scope">A claim holds if the whole 95 % interval of its runs lies in the required range, and '
        "fails if no part of the interval does. Otherwise it is undecided, and more runs may decide it. "
        '<a href="#verdicts">What the verdicts mean</a></p>'
        '<div class="scroll"><table class="claims"><thead><tr><th>verdict</th><th>statement</th><th>required</th>'
        '<th class="n">paper</th><th class="n">measured</th><th class="n">95 % interval</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _claim_row(claim: Claim) -> str:
    word, mark = _MARKS[claim.holds]
    alone = "<small>alone</small>" if claim.holds is not claim.together else ""
    calibration = ' <span class="tag">calibration</span>' if claim.calibration else ""
    note = f"<small>{inline_html(claim.note)}</small>" if claim.note else ""
    paper = claim.paper if isinstance(claim.paper, str) else number_text(claim.paper)
    ours, low, high = interval_texts(claim.ours, claim.low, claim.high)
    bounds = f"[{low}, {high}]" if claim.low is not None else "–"
    return (
        f'<tr><td class="verdict {word}"><i>{mark}</i> {word}{alone}</td>'
        f"<td>{inline_html(claim.statement)}{calibration}{note}</td>{_cell('required', escape(claim.asked) or '–', '')}"
        f"{_cell('paper', escape(paper))}{_cell('measured', ours)}{_cell('95 % interval', bounds)}</tr>"
    )


def verdict_glossary() -> str:
    """Render the explanation of verdicts and columns."""
    items = "".join(f"<dt>{word}</dt><dd>{escape(meaning)}</dd>" for word, meaning in _VERDICTS.items())
    before = "The tolerance of a claim is part of its experiment and was fixed before the runs."
    return f'<section id="verdicts"><h2>What the verdicts mean</h2><p>{before}</p><dl>{items}</dl></section>'


Summary = Mapping[tuple[str, str], Interval]
"""(point, metric) -> mean and interval."""


@dataclass(frozen=True)
class ReportSection:
    """The part of a report about one experiment."""

    experiment: Experiment
    records: Sequence[Record]
    summary: Summary
    figures: Sequence[DrawnFigure]
    claims: Sequence[Claim]
    player: str | None = None
    """The relative path of the page that plays runs."""
    differences: Summary | None = None
    """The differences of each point to its reference, paired by seed."""
    sentences: Sequence[str] = ()
    """What was found, in words with numbers."""
    warnings: Sequence[str] = ()
    """Reasons why the runs may be less meaningful than they seem."""
    counted: Sequence[PointRuns] = ()
    """The runs of each point, if points stop when their claims are decided."""


def report_page(title: str, sections: Sequence[ReportSection], versions: Mapping[str, str]) -> str:
    """Render the page."""
    alone = len(sections) == 1
    body = [f"<h1>{escape(title)}</h1>", _failures(sections), _opening(sections), _contents(sections), _scope(sections)]
    body += [_section(section, alone, first=section is sections[0]) for section in sections]
    if any(section.claims for section in sections):
        body.append(verdict_glossary())
    papers = [section.experiment.definition.paper for section in sections]
    body += [citation_section(papers), _versions(versions)]
    return html_page(title, "\n".join(body))


def html_page(title: str, body: str) -> str:
    """A whole page that needs no other file."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + body
        + "\n</main>\n</body>\n</html>\n"
    )


MOST_SENTENCES = 6
"""Sentences with which a page opens; the sections have all."""


def _opening(sections: Sequence[ReportSection]) -> str:
    """The picture of the first section and what was found there, in words."""
    first = sections[0]
    drawn = _opening_figure(first)
    picture = "" if drawn is None else _figure(first.experiment, drawn, anchor=len(sections) == 1)
    return picture + "".join(f'<p class="sentence">{escape(text)}</p>' for text in first.sentences[:MOST_SENTENCES])


def _opening_figure(section: ReportSection) -> DrawnFigure | None:
    """The figure of the experiment's headline, else its first; None if none could be drawn."""
    headline = section.experiment.definition.headline
    wanted = [drawn for drawn in section.figures if headline is not None and drawn.figure.name == headline.figure]
    return next(iter([*wanted, *section.figures]), None)


def _failures(sections: Sequence[ReportSection]) -> str:
    runs = sum(len(section.records) for section in sections)
    failed = sum(record["error"] is not None for section in sections for record in section.records)
    if not failed:
        return ""
    return f'<p class="errors">{failed:,} of {runs:,} runs failed. Each section names those that did.</p>'


def _scope(sections: Sequence[ReportSection]) -> str:
    """How many runs the page is about, and how many of the claims hold."""
    runs = sum(len(section.records) for section in sections)
    claims = [claim.holds for section in sections for claim in section.claims if not claim.calibration]
    said = f"{runs:,} runs in all."
    if claims:
        counted = "1 claim" if len(claims) == 1 else f"{len(claims)} claims"
        said += (
            f" The experiments check {counted}: {claims.count(True)} hold, {claims.count(False)} fail, and "
            f'{claims.count(None)} are undecided with this number of runs (<a href="#verdicts">what this means</a>).'
        )
    return f'<p class="scope">{said}</p>'


def _contents(sections: Sequence[ReportSection]) -> str:
    items = []
    for section in sections:
        name = section.experiment.name
        inner = []
        if section.claims:
            inner.append(f'<a href="#{_id(name, "claims")}">claims</a>')
        inner += [
            f'<a href="#{_id(name, drawn.figure.name)}">{escape(drawn.figure.title or drawn.figure.name)}</a>'
            for drawn in section.figures
        ]
        if section.differences is not None:
            inner.append(f'<a href="#{_id(name, "differences")}">differences</a>')
        inner.append(f'<a href="#{_id(name, "means")}">means</a>')
        inner.append(f'<a href="#{_id(name, "settings")}">settings</a>')
        title = section.experiment.definition.title or name
        # The page has opened with those of the first.
        found = f"<br>{escape(section.sentences[0])}" if section.sentences and section is not sections[0] else ""
        items.append(f'<li><a href="#{_id(name)}">{escape(title)}</a>{found}<small>{" · ".join(inner)}</small></li>')
    return f"<nav><ol>{''.join(items)}</ol></nav>"


def _id(*parts: str) -> str:
    return escape("-".join(parts).replace(" ", "-"), quote=True)


def _section(section: ReportSection, alone: bool, first: bool) -> str:
    experiment, definition = section.experiment, section.experiment.definition
    paper = f'<p class="paper">{inline_html(definition.paper)}</p>' if definition.paper else ""
    heading = "The experiment" if alone else definition.title or experiment.name
    fewer = ", at some points fewer" if definition.fewer else ""
    count, seeds = len(experiment.points), len(experiment.seeds)
    most = "at most " if section.counted else ""
    scope = f"{count} point{'s' if count > 1 else ''} (combinations of settings), {most}{seeds} seeds each{fewer}."
    fixed = [f"{axis.name} {experiment.labels(axis.name)[0]}" for axis in definition.axes if not _varies(section, axis)]
    if fixed:
        scope += f" The same at all points: {', '.join(fixed)}."
    # The page has opened with the sentences of the first section, and with its figure.
    shown = _opening_figure(section) if alone else None
    parts = [
        f'<section id="{_id(experiment.name)}"><h2>{escape(heading)}</h2>',
        f'{paper}{block_html(definition.description)}<p class="scope">{escape(scope)}</p>',
        _warnings(section),
        _watch(section),
        _sentences(section, MOST_SENTENCES if first else 0),
        _claims(section),
        _runs(section),
        *(_figure(experiment, drawn) for drawn in section.figures if drawn is not shown),
        _differences(section),
        _means(section),
        _errors(section),
        _settings(section),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _warnings(section: ReportSection) -> str:
    if not section.warnings:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in section.warnings)
    return f'<h3>Warnings</h3><ul class="errors">{items}</ul>'


def _watch(section: ReportSection) -> str:
    if section.player is None:
        return ""
    seed = section.experiment.seeds[0]
    return f'<p class="watch"><a href="{escape(section.player, quote=True)}">▶ Watch it</a> at seed {seed}</p>'


def _claims(section: ReportSection) -> str:
    if not section.claims:
        return ""
    heading = f'<h3 id="{_id(section.experiment.name, "claims")}">Claims {_files("claims.csv")}</h3>'
    return heading + claims_table(section.claims)


def _runs(section: ReportSection) -> str:
    """A table of the runs of each point, if points stop when their claims are decided."""
    if not section.counted:
        return ""
    rows = "".join(
        f"<tr><td>{escape(one.point)}</td><td>{one.runs} of {one.most}</td><td>{escape(one.why)}</td></tr>"
        for one in section.counted
    )
    head = "<tr><th>point</th><th>runs</th><th>why no more</th></tr>"
    return (
        f"<details><summary>Runs of each point: {escape(stop_sentence(section.counted))}</summary>"
        f"<table><thead>{head}</thead><tbody>{rows}</tbody></table></details>"
    )


def _files(*paths: str) -> str:
    """Render links to files beside the page, named by their types."""
    links = " · ".join(f'<a href="{escape(path, quote=True)}">{path.rsplit(".", 1)[1].upper()}</a>' for path in paths)
    return f'<span class="files">{links}</span>'


def _figure(experiment: Experiment, drawn: DrawnFigure, anchor: bool = True) -> str:
    """A figure with its caption and files; links of the page lead to the one with the anchor."""
    figure = drawn.figure
    image = base64.b64encode(drawn.svg).decode("ascii")
    title = figure.title or figure.name
    paper = f" <em>Paper: {escape(figure.paper)}.</em>" if figure.paper else ""
    wide = ' class="wide"' if figure.panels or len(figure.metrics) > 1 or figure.kind == "runs" else ""
    place = f' id="{_id(experiment.name, figure.name)}"' if anchor else ""
    whiskers = f" {_WHISKERS}" if figure.kind in ("bars", "line") and "interval" not in figure.caption else ""
    file = f"{experiment.name}-{figure.name}"
    files = _files(f"figures/{file}.svg", f"figures/{file}.png", f"tables/{file}.csv")
    return (
        f"<figure{place}{wide}>"
        f'<img alt="{escape(title, quote=True)}" src="data:image/svg+xml;base64,{image}">'
        f"<figcaption><b>{escape(title)}.</b> {inline_html(figure.caption)}{whiskers}{paper} {files}"
        "</figcaption></figure>"
    )


_WHISKERS = "Means over the runs; whiskers are their 95 % confidence intervals."
_CELLS = (
    "Each cell is the mean over the runs of its row. The number after ±, or the range in parentheses, is the 95 % "
    "confidence interval of the mean."
)


def _means(section: ReportSection) -> str:
    experiment = section.experiment
    done = {
        point.name: sum(record["point"] == point.name and record["error"] is None for record in section.records)
        for point in experiment.points
    }
    return (
        f'<h3 id="{_id(experiment.name, "means")}">Means {_files(f"tables/{experiment.name}-means.csv")}</h3>'
        f'<p class="scope">{_CELLS}</p>'
        + _tables(section, experiment.points, section.summary, done)
        + _meanings(section)
    )


def _differences(section: ReportSection) -> str:
    """Render the table of paired differences to the reference."""
    experiment, axis = section.experiment, section.experiment.definition.reference
    if section.differences is None:
        return ""
    first = experiment.labels(axis)[0]
    points = [point for point in experiment.points if point.labels[axis] != first]
    name = escape(first)
    return (
        f'<h3 id="{_id(experiment.name, "differences")}">Paired differences to {name} '
        f"{_files(f'tables/{experiment.name}-differences.csv')}</h3>"
        f'<p class="scope">Each cell is the mean difference between a run and the run of {name} with the same seed, '
        "so on the same movement. The number after ±, or the range in parentheses, is its 95 % confidence interval. "
        "If the interval does not contain 0, the two differ.</p>" + _tables(section, points, section.differences)
    )


MOST_COLUMNS = 4
"""Metrics of a table. The others are in tables below it, since a wider one would not fit a tablet's screen."""


def _tables(
    section: ReportSection, points: Sequence[Point], found: Summary, done: Mapping[str, int] | None = None
) -> str:
    """Tables with a row for each point; with `done`, the runs of each point, else with signs, as differences."""
    metrics = section.experiment.definition.metrics
    parts = [metrics[begin : begin + MOST_COLUMNS] for begin in range(0, len(metrics), MOST_COLUMNS)]
    return "".join(_table(section, part, points, found, done) for part in parts)


def _table(
    section: ReportSection,
    metrics: Sequence[str],
    points: Sequence[Point],
    found: Summary,
    done: Mapping[str, int] | None,
) -> str:
    axes = [axis for axis in section.experiment.definition.axes if _varies(section, axis)]
    head = "".join(f"<th>{escape(axis.name)}</th>" for axis in axes)
    head += "" if done is None else '<th class="n">runs</th>'
    head += "".join(f'<th class="n">{escape(metric_label(metric))}</th>' for metric in metrics)
    rows = "".join(_row(axes, metrics, point, found, done) for point in points)
    return f'<div class="scroll"><table class="means"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _varies(section: ReportSection, axis: Axis) -> bool:
    """Whether points differ in the axis; of a single point the first axis stands for its name."""
    points, axes = section.experiment.points, section.experiment.definition.axes
    if len(points) == 1:
        return axis is axes[0]
    return len({point.labels[axis.name] for point in points}) > 1


def _row(
    axes: Sequence[Axis], metrics: Sequence[str], point: Point, found: Summary, done: Mapping[str, int] | None
) -> str:
    cells = "".join(_cell(axis.name, escape(point.labels[axis.name]), "") for axis in axes)
    runs = None if done is None else done[point.name]
    cells += "" if runs is None else _cell("runs", str(runs))
    for metric in metrics:
        one = found.get((point.name, metric), Interval(0, None, None, None))
        left_out = f'<small title="runs in which it exists">n = {one.n}</small>' if runs not in (None, one.n) else ""
        sign = "+" if done is None and one.mean is not None and one.mean > 0 else ""
        mean, bracket, interval = mean_text(one, metric_scale(metric)).partition(" (")
        text = escape(f"{sign}{mean}") + (f' <span class="interval">({escape(interval)}</span>' if bracket else "")
        cells += _cell(metric_label(metric), text + left_out)
    return f"<tr>{cells}</tr>"


def _cell(label: str, html: str, kind: str = "n") -> str:
    """A cell that names its column, which a narrow screen shows beside the value."""
    shown = f' class="{kind}"' if kind else ""
    return f'<td{shown} data-label="{escape(label, quote=True)}"><span>{html}</span></td>'


def _sentences(section: ReportSection, shown: int) -> str:
    return "".join(f'<p class="sentence">{escape(text)}</p>' for text in section.sentences[shown:])


def _errors(section: ReportSection) -> str:
    failed = [record for record in section.records if record["error"] is not None]
    if not failed:
        return ""
    items = "".join(
        f"<li>{escape(str(record['point']))}, seed {escape(str(record['seed']))}: {escape(str(record['error']))}</li>"
        for record in failed[:50]
    )
    more = f"<p>and {len(failed) - 50} more; see runs.parquet</p>" if len(failed) > 50 else ""
    return f'<h3>Failed runs</h3><ul class="errors">{items}</ul>{more}'


def _settings(section: ReportSection) -> str:
    folds = []
    for point in section.experiment.points:
        settings = {**msgspec.to_builtins(point.scenario), "base": ""}
        text = msgspec.json.format(msgspec.json.encode(settings), indent=2).decode()
        prints = [
            f"{record['seed']}: {record['fingerprint']}" for record in section.records if record["point"] == point.name
        ]
        folds.append(
            f"<details><summary>{escape(point.name)}</summary><pre>{escape(text)}</pre>"
            f"<p>Fingerprints by seed</p><pre>{escape(chr(10).join(prints))}</pre></details>"
        )
    numbers = section.experiment.seeds
    row = numbers == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 2
    seeds = f"{numbers[0]} to {numbers[-1]}" if row else ", ".join(map(str, numbers))
    return (
        f'<h3 id="{_id(section.experiment.name, "settings")}">Exact settings</h3>'
        f"<p>Seeds {escape(seeds)}. Open a point to see every setting of its runs.</p>{''.join(folds)}"
    )


def _meanings(section: ReportSection) -> str:
    """What the columns of the table of means are, below it."""
    definition = section.experiment.definition
    meanings = {asked.name: asked.meaning() for asked in definition.measures}
    meanings |= {own.name: own.meaning for own in section.experiment.own}
    meanings |= metric_meanings()
    items = "".join(
        f"<dt>{escape(metric_label(metric))} <code>{escape(metric)}</code></dt><dd>{escape(meanings[metric])}</dd>"
        for metric in definition.metrics
    )
    return f"<details><summary>What the columns mean</summary><dl>{items}</dl></details>"


def _versions(versions: Mapping[str, str]) -> str:
    items = " · ".join(f"{escape(name)} {escape(version)}" for name, version in versions.items())
    return f"<footer>{items}</footer>"
