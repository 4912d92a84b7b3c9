"""The statements of the papers: `statements.toml` beside the experiment that repeats a paper's evaluation."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.settings import parse_settings, read_toml
from carrycast.errors import UserError

FILE = "statements.toml"
EXPERIMENTS = Path(__file__).parents[1] / "experiments"
MAX_WORDS = 16
"""A statement is read in a table, so it is short."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment that evaluates the claims of a paper in one reading of what the paper leaves open."""

    name: Annotated[str, Meta(min_length=1)]
    """The name of the reading in the table. The first reading of a file is the default one."""
    experiment: str
    prefix: str = ""
    """The text before each claim of this reading, for experiments that evaluate claims once for each reading."""


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement of a paper, with the claims that test it."""

    where: Annotated[str, Meta(min_length=1)]
    """The section and the figure of the paper."""
    text: Annotated[str, Meta(min_length=1)]
    """The statement in about ten words."""
    paper: str = ""
    """The number in the paper, if it has one."""
    claims: list[str] = []
    """The claims that test the statement, as the experiment states them. It is reproduced if all of them hold. A
    statement without claims cannot be judged, and `cause` says why."""
    experiment: str = ""
    """The experiment of these claims, if it is not that of the reading."""
    cause: str = ""
    """Why the statement is not reproduced, or cannot be judged, in one sentence."""


class PaperStatements(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The statements of one paper, and the claims of its experiments that are no statement of the paper."""

    paper: str
    """The number of the paper."""
    title: str
    page: str
    """The page of the documentation with the results."""
    readings: Annotated[list[Reading], Meta(min_length=1)]
    statements: Annotated[list[Statement], Meta(min_length=1)]
    own: list[str] = []
    """Claims that are our own hypotheses."""

    @property
    def experiments(self) -> list[str]:
        """The experiments whose claims the file assigns, each once."""
        named = [reading.experiment for reading in self.readings if not reading.prefix]
        return list(dict.fromkeys([*named, *(one.experiment for one in self.statements if one.experiment)]))


def read_statements(folder: Path = EXPERIMENTS) -> list[PaperStatements]:
    """Read the statements of all papers, in the order of their numbers."""
    found = [_read(path) for path in sorted(folder.glob(f"*/{FILE}"))]
    return sorted(found, key=lambda paper: paper.paper)


def _read(path: Path) -> PaperStatements:
    found = parse_settings(read_toml(path), PaperStatements, str(path))
    for number, statement in enumerate(found.statements):
        at = f"{path}: statements[{number}]"
        if len(statement.text.split()) > MAX_WORDS:
            raise UserError(f"{at}.text: has more than {MAX_WORDS} words")
        if not statement.claims and not statement.cause:
            raise UserError(f"{at}: has no claims; its cause must say why it cannot be judged")
    assigned = Counter(claim for statement in found.statements for claim in statement.claims)
    twice = [claim for claim, count in assigned.items() if count > 1]
    if twice:
        raise UserError(f"{path}: the claim {twice[0]!r} belongs to two statements")
    both = [claim for claim in found.own if claim in assigned]
    if both:
        raise UserError(f"{path}: own: {both[0]!r} belongs to a statement of the paper")
    return found
