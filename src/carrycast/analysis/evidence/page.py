"""The page of evidence, as Markdown for the documentation and as one HTML file."""

from collections.abc import Sequence

from carrycast.analysis.evidence.join import Evidence, StatementRow, Verdict
from carrycast.analysis.reports import CSS, block_html, interval_texts
from carrycast.analysis.spark import Claim

_INTRODUCTION = """\
# Evidence

This page has a row for each statement of the five papers: what the paper says, what carrycast measured, and a verdict.
`carrycast evidence` writes it from the reports of the experiments.

| verdict | meaning |
|---|---|
| reproduced | every claim that tests the statement holds in the default reading |
| in a reading | it holds in another reading of what the paper leaves open, which the row names |
| not reproduced | a claim fails in the default reading, and no other reading that was run makes all of them hold |
| cannot be judged | the runs do not decide it, or what the paper says cannot be measured |

Numbers are means with 95 % confidence intervals. [Claims](claims.md) explains how they are decided."""


def evidence_markdown(evidence: Sequence[Evidence]) -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION, "\n".join(_summary_line(one) for one in evidence)]
    for one in evidence:
        parts.append(f"## Paper {one.paper.paper}: {one.paper.title}")
        parts.append(f"[Results]({one.paper.page}) has the figures and the commands that repeat the runs.")
        parts.append("\n".join(_table(one)))
    hypotheses = [line for one in evidence for line in _own_rows(one)]
    if hypotheses:
        parts.append("## Our own hypotheses")
        parts.append("These claims are no statements of the papers. The experiments test them beside those.")
        head = ["| paper | hypothesis | measured | verdict |", "|---|---|---|---|"]
        parts.append("\n".join([*head, *hypotheses]))
    return "\n\n".join(parts) + "\n"


def evidence_html(evidence: Sequence[Evidence]) -> str:
    """Return the page as one self-contained HTML file."""
    body = block_html(evidence_markdown(evidence))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Evidence</title><style>{CSS}</style></head><body><main>{body}</main></body></html>\n"
    )


def _summary_line(one: Evidence) -> str:
    counts = one.counts()
    named = [f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]]
    return f"- **{one.paper.paper}**, {one.paper.title}: of {len(one.rows)} statements, {', '.join(named)}."


def _table(one: Evidence) -> list[str]:
    default = one.paper.readings[0].name
    head = f"| where | statement | paper | ours ({default}) | ours in the nearest reading | verdict | why |"
    return [head, "|---" * 7 + "|", *(_table_row(row) for row in one.rows)]


def _table_row(row: StatementRow) -> str:
    statement = row.statement
    nearest = f"{row.reading}: {_measured(row.nearest)}" if row.nearest is not None else ""
    verdict = f"with reading {row.reading}" if row.verdict is Verdict.IN_A_READING else row.verdict.value
    why = "" if row.verdict is Verdict.REPRODUCED else statement.cause
    cells = (statement.where, statement.text, statement.paper, _measured(row.default), nearest, verdict, why)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _own_rows(one: Evidence) -> list[str]:
    words = {True: "holds", False: "fails", None: "undecided"}
    return [
        f"| {one.paper.paper} | {claim.statement.replace('|', '/')} | {_measured(claim)} | {words[claim.holds]} |"
        for claim in one.own
    ]


def _measured(claim: Claim | None) -> str:
    if claim is None or claim.ours is None:
        return "no runs"
    ours, low, high = interval_texts(claim.ours, claim.low, claim.high)
    return ours if claim.low is None else f"{ours} ({low} to {high})"
