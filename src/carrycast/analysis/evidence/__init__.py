"""Evidence: what the papers state, beside what carrycast measured."""

from carrycast.analysis.evidence.join import (
    Evidence,
    StatementRow,
    Verdict,
    join_statements,
    read_claims,
)
from carrycast.analysis.evidence.page import evidence_html, evidence_markdown
from carrycast.analysis.evidence.statements import PaperStatements, Reading, Statement, read_statements

__all__ = [
    "Evidence",
    "PaperStatements",
    "Reading",
    "StatementRow",
    "Statement",
    "Verdict",
    "evidence_html",
    "evidence_markdown",
    "join_statements",
    "read_claims",
    "read_statements",
]
