"""The claims of a report: what was asked, what was found, and what the verdicts mean."""

from collections.abc import Sequence
from html import escape

from carrycast.analysis.reports.markdown import words
from carrycast.analysis.reports.tables import interval_texts, number
from carrycast.analysis.spark.claims import Claim

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
    """A row for each claim."""
    rows = "".join(map(_row, claims))
    return (
        '<p class="scope"><a href="#verdicts">What the verdicts mean</a></p>'
        '<div class="scroll"><table class="claims"><thead><tr><th>verdict</th><th>statement</th><th>asked</th>'
        '<th class="n">paper</th><th class="n">ours</th><th class="n">95 % interval</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(claim: Claim) -> str:
    word, mark = _MARKS[claim.holds]
    alone = "<small>alone</small>" if claim.holds is not claim.together else ""
    calibration = ' <span class="tag">calibration</span>' if claim.calibration else ""
    note = f"<small>{words(claim.note)}</small>" if claim.note else ""
    paper = claim.paper if isinstance(claim.paper, str) else number(claim.paper)
    ours, low, high = interval_texts(claim.ours, claim.low, claim.high)
    bounds = f"[{low}, {high}]" if claim.low is not None else "–"
    return (
        f'<tr><td class="verdict {word}"><i>{mark}</i> {word}{alone}</td>'
        f"<td>{words(claim.statement)}{calibration}{note}</td><td>{escape(claim.asked) or '–'}</td>"
        f'<td class="n">{escape(paper)}</td><td class="n">{ours}</td><td class="n">{bounds}</td></tr>'
    )


def meanings_of_verdicts() -> str:
    """What the words beside claims mean."""
    items = "".join(f"<dt>{word}</dt><dd>{escape(meaning)}</dd>" for word, meaning in _VERDICTS.items())
    before = "The tolerance of a claim is part of its experiment and was fixed before the runs."
    return f'<section id="verdicts"><h2>What the verdicts mean</h2><p>{before}</p><dl>{items}</dl></section>'
