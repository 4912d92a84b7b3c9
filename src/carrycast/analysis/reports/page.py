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
from carrycast.analysis.spark import Claim, Experiment, Interval, Point, Record
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
    return found


def inline_html(text: str) -> str:
    """Render inline Markdown: code, emphasis and links."""
    found: str = _parser().renderInline(" ".join(text.split()))
    return found


_MARKS = {True: ("holds", "✓"), False: ("fails", "✗"), None: ("undecided", "?")}
_VERDICTS = {
    "holds": "the whole 95 % interval of the runs lies where the statement wants it, its tolerance included.",
    "fails": "no part of the interval does.",
    "undecided": "part of it does, or there are too few runs for an interval, or all are alike: more runs may tell.",
    "alone": "decided if it is asked alone. If all claims of the experiment are to be right at once, with 95 % "
    "confidence, this one is undecided (Holm's method): of many questions some are answered by chance.",
    "calibration": "a setting was fitted to this number, so that it agrees proves nothing; it counts in no sum.",
    "asked": "what the interval is held against. Of a comparison, the difference between its two sides, seed by seed. "
    "A tolerance forgives so much on the wrong side, or around an equal; where none is named there is none.",
    "paper": "the number that the paper has, if it has one.",
    "ours": "the mean over the runs, or over the differences between paired runs.",
}


def claims_table(claims: Sequence[Claim]) -> str:
    """Render a table with a row for each claim."""
    rows = "".join(map(_claim_row, claims))
    return (
        '<p class="scope"><a href="#verdicts">What the verdicts mean</a></p>'
        '<div class="scroll"><table class="claims"><thead><tr><th>verdict</th><th>statement</th><th>asked</th>'
        '<th class="n">paper</th><th class="n">ours</th><th class="n">95 % interval</th></tr></thead>'
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
        f"<td>{inline_html(claim.statement)}{calibration}{note}</td><td>{escape(claim.asked) or '–'}</td>"
        f'<td class="n">{escape(paper)}</td><td class="n">{ours}</td><td class="n">{bounds}</td></tr>'
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
    warnings: Sequence[str] = ()
    """Reasons why the runs may be less meaningful than they seem."""


def report_page(title: str, sections: Sequence[ReportSection], versions: Mapping[str, str]) -> str:
    """Render the page."""
    body = [f"<h1>{escape(title)}</h1>", _overview(sections), _contents(sections)]
    body += [_section(section, alone=len(sections) == 1) for section in sections]
    if any(section.claims for section in sections):
        body.append(verdict_glossary())
    papers = [section.experiment.definition.paper for section in sections]
    body += [_meanings(sections), citation_section(papers), _versions(versions)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _overview(sections: Sequence[ReportSection]) -> str:
    runs = sum(len(section.records) for section in sections)
    failed = sum(record["error"] is not None for section in sections for record in section.records)
    claims = [claim for section in sections for claim in section.claims]
    tiles = [(f"{runs:,}", "runs")]
    if failed:
        tiles.append((str(failed), "failed"))
    if claims:
        counted = [claim for claim in claims if not claim.calibration]
        tiles += [
            (f"{sum(claim.holds is True for claim in counted)} / {len(counted)}", "claims hold"),
            (str(sum(claim.holds is False for claim in counted)), "fail"),
            (str(sum(claim.holds is None for claim in counted)), "undecided"),
        ]
    inner = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in tiles)
    return f'<div class="tiles">{inner}</div>'


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
        items.append(f'<li><a href="#{_id(name)}">{escape(title)}</a><small>{" · ".join(inner)}</small></li>')
    return f"<nav><ol>{''.join(items)}</ol></nav>"


def _id(*parts: str) -> str:
    return escape("-".join(parts).replace(" ", "-"), quote=True)


def _section(section: ReportSection, alone: bool) -> str:
    experiment, definition = section.experiment, section.experiment.definition
    paper = f'<p class="paper">{inline_html(definition.paper)}</p>' if definition.paper else ""
    heading = "The experiment" if alone else definition.title or experiment.name
    scope = f"{len(experiment.points)} points × {len(experiment.seeds)} seeds; means with 95 % intervals."
    if definition.fewer:
        scope = scope.replace("seeds;", "seeds, fewer at some;")
    parts = [
        f'<section id="{_id(experiment.name)}"><h2>{escape(heading)}</h2>',
        f'{paper}{block_html(definition.description)}<p class="scope">{escape(scope)}</p>',
        _warnings(section),
        _watch(section),
        _sentences(section),
        _claims(section),
        *(_figure(experiment, drawn) for drawn in section.figures),
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


def _files(*paths: str) -> str:
    """Render links to files beside the page, named by their types."""
    links = " · ".join(f'<a href="{escape(path, quote=True)}">{path.rsplit(".", 1)[1].upper()}</a>' for path in paths)
    return f'<span class="files">{links}</span>'


def _figure(experiment: Experiment, drawn: DrawnFigure) -> str:
    figure = drawn.figure
    image = base64.b64encode(drawn.svg).decode("ascii")
    title = figure.title or figure.name
    paper = f" <em>Paper: {escape(figure.paper)}.</em>" if figure.paper else ""
    wide = ' class="wide"' if figure.panels or len(figure.metrics) > 1 or figure.kind == "runs" else ""
    file = f"{experiment.name}-{figure.name}"
    files = _files(f"figures/{file}.svg", f"figures/{file}.png", f"tables/{file}.csv")
    return (
        f'<figure id="{_id(experiment.name, figure.name)}"{wide}>'
        f'<img alt="{escape(title, quote=True)}" src="data:image/svg+xml;base64,{image}">'
        f"<figcaption><b>{escape(title)}.</b> {inline_html(figure.caption)}{paper} {files}</figcaption></figure>"
    )


def _means(section: ReportSection) -> str:
    experiment = section.experiment
    rows = []
    for point in experiment.points:
        done = sum(record["point"] == point.name and record["error"] is None for record in section.records)
        rows.append(_row(section, point, f'<td class="n">{done}</td>', section.summary, done))
    return (
        f'<h3 id="{_id(experiment.name, "means")}">Means {_files(f"tables/{experiment.name}-means.csv")}</h3>'
        + _table(section, rows, ["runs"])
    )


def _differences(section: ReportSection) -> str:
    """Render the table of paired differences to the reference."""
    experiment, axis = section.experiment, section.experiment.definition.reference
    if section.differences is None:
        return ""
    first = experiment.labels(axis)[0]
    rows = [
        _row(section, point, "", section.differences, signed=True)
        for point in experiment.points
        if point.labels[axis] != first
    ]
    name = escape(first)
    return (
        f'<h3 id="{_id(experiment.name, "differences")}">Paired differences to {name} '
        f"{_files(f'tables/{experiment.name}-differences.csv')}</h3>"
        f'<p class="scope">Each run minus that of {name} with the same seed, so on the same movement. '
        "An interval without 0 in it tells the two apart.</p>" + _table(section, rows, [])
    )


def _table(section: ReportSection, rows: Sequence[str], more: Sequence[str]) -> str:
    definition = section.experiment.definition
    head = "".join(f"<th>{escape(axis.name)}</th>" for axis in definition.axes)
    head += "".join(f'<th class="n">{name}</th>' for name in more)
    head += "".join(f'<th class="n">{escape(metric_label(metric))}</th>' for metric in definition.metrics)
    return (
        f'<div class="scroll"><table class="means"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(
    section: ReportSection, point: Point, more: str, found: Summary, done: int | None = None, signed: bool = False
) -> str:
    definition = section.experiment.definition
    cells = "".join(f"<td>{escape(point.labels[axis.name])}</td>" for axis in definition.axes) + more
    for metric in definition.metrics:
        one = found.get((point.name, metric), Interval(0, None, None, None))
        left_out = f'<small title="runs in which it exists">n = {one.n}</small>' if done not in (None, one.n) else ""
        sign = "+" if signed and one.mean is not None and one.mean > 0 else ""
        cells += f'<td class="n">{sign}{escape(mean_text(one, metric_scale(metric)))}{left_out}</td>'
    return f"<tr>{cells}</tr>"


def _sentences(section: ReportSection) -> str:
    return "".join(f'<p class="sentence">{escape(text)}</p>' for text in section.sentences)


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
        f"<p>Seeds {escape(seeds)}. Each point unfolds to all that decides its runs.</p>{''.join(folds)}"
    )


def _meanings(sections: Sequence[ReportSection]) -> str:
    definitions = [section.experiment.definition for section in sections]
    meanings = {asked.name: asked.meaning() for definition in definitions for asked in definition.measures}
    meanings |= {own.name: own.meaning for section in sections for own in section.experiment.own}
    meanings |= metric_meanings()
    used = dict.fromkeys(metric for definition in definitions for metric in definition.metrics)
    items = "".join(
        f"<dt>{escape(metric_label(metric))} <code>{escape(metric)}</code></dt><dd>{escape(meanings[metric])}</dd>"
        for metric in used
    )
    return f"<section><h2>What the metrics mean</h2><dl>{items}</dl></section>"


def _versions(versions: Mapping[str, str]) -> str:
    items = " · ".join(f"{escape(name)} {escape(version)}" for name, version in versions.items())
    return f"<footer>{items}</footer>"
