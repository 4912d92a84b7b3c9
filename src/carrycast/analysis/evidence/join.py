"""Join the statements of the papers with the claims of reports: one row for each statement."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from carrycast.analysis.evidence.statements import PaperStatements, Reading, Statement
from carrycast.analysis.spark import Claim
from carrycast.errors import UserError

CLAIMS_FILE = "claims.json"


class Verdict(StrEnum):
    """What the runs say about a statement of a paper."""

    REPRODUCED = "reproduced"
    IN_A_READING = "in a reading"
    NOT_REPRODUCED = "not reproduced"
    OPEN = "cannot be judged"


@dataclass(frozen=True)
class StatementRow:
    """A statement with what was measured."""

    statement: Statement
    verdict: Verdict
    default: Claim | None
    """The decisive claim in the default reading; None if there are no runs."""
    nearest: Claim | None = None
    """The decisive claim in the nearest other reading."""
    reading: str = ""
    """The name of that reading."""


@dataclass(frozen=True)
class Evidence:
    """The rows of one paper, and our own hypotheses beside them."""

    paper: PaperStatements
    rows: list[StatementRow]
    own: list[Claim]

    def counts(self) -> Counter[Verdict]:
        """The number of statements by verdict."""
        return Counter(row.verdict for row in self.rows)

    def without_cause(self) -> list[Statement]:
        """Statements that are not reproduced in the default reading and do not say why."""
        return [row.statement for row in self.rows if row.verdict is not Verdict.REPRODUCED and not row.statement.cause]


def read_claims(reports: Iterable[Path]) -> list[Claim]:
    """Read the claims of report directories. A claim that two reports have is an error."""
    found: dict[tuple[str, str], Path] = {}
    claims = []
    for out in reports:
        path = out / CLAIMS_FILE
        try:
            rows = msgspec.json.decode(path.read_bytes(), type=list[Claim])
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read: {error}; `carrycast report {out}` writes it") from None
        for claim in rows:
            key = claim.experiment, claim.statement
            if found.setdefault(key, path) != path:
                raise UserError(f"{path}: {found[key]} has the experiment {claim.experiment} too; name one of them")
        claims += rows
    return claims


def join_statements(papers: Sequence[PaperStatements], claims: Sequence[Claim]) -> list[Evidence]:
    """Give each statement its verdict. A claim of a paper's experiment without a statement is an error."""
    by_name = {(claim.experiment, claim.statement): claim for claim in claims}
    return [_join_paper(paper, by_name) for paper in papers]


def _join_paper(paper: PaperStatements, claims: Mapping[tuple[str, str], Claim]) -> Evidence:
    assigned = {claim for statement in paper.statements for claim in statement.claims} | set(paper.own)
    for experiment, text in claims:
        if experiment in paper.experiments and text not in assigned:
            raise UserError(f"{experiment}: the claim {text!r} belongs to no statement of paper {paper.paper}")
    default = paper.readings[0]
    own = [
        claim for (experiment, text), claim in claims.items() if experiment == default.experiment and text in paper.own
    ]
    return Evidence(paper, [_join_statement(one, paper.readings, claims) for one in paper.statements], own)


def _join_statement(
    statement: Statement, readings: Sequence[Reading], claims: Mapping[tuple[str, str], Claim]
) -> StatementRow:
    holds, decisive = _decide(statement, readings[0], claims)
    if holds:
        return StatementRow(statement, Verdict.REPRODUCED, decisive)
    others = [(reading, *_decide(statement, reading, claims)) for reading in readings[1:]]
    for reading, holds_there, found in others:
        if holds_there:
            return StatementRow(statement, Verdict.IN_A_READING, decisive, found, reading.name)
    verdict = Verdict.NOT_REPRODUCED if holds is False else Verdict.OPEN
    for reading, _, found in others:
        if found is not None:
            return StatementRow(statement, verdict, decisive, found, reading.name)
    return StatementRow(statement, verdict, decisive)


def _decide(
    statement: Statement, reading: Reading, claims: Mapping[tuple[str, str], Claim]
) -> tuple[bool | None, Claim | None]:
    """Whether all claims of a statement hold in a reading, and the claim that decides it."""
    experiment = statement.experiment or reading.experiment
    found = [claims.get((experiment, f"{reading.prefix}{text}")) for text in statement.claims]
    there = [claim for claim in found if claim is not None]
    if not there or len(there) < len(found):
        return None, there[0] if there else None
    for holds in (False, None):
        for claim in there:
            if claim.holds is holds:
                return holds, claim
    return True, there[0]
