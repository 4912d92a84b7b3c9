"""The page of evidence: a row for each statement of a paper, joined with the claims of reports."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from carrycast.analysis.evidence import (
    PaperStatements,
    Verdict,
    evidence_html,
    evidence_markdown,
    join_statements,
    read_claims,
    read_statements,
)
from carrycast.analysis.spark.claims import Claim, evaluate_claims
from carrycast.analysis.spark.experiment import Experiment, load_experiment
from carrycast.analysis.spark.records import Record, metric_columns
from carrycast.analysis.spark.results import Results
from carrycast.errors import UserError
from tests.cli.console import call
from tests.pipeline.spread import spread

STATEMENTS = """
paper = "009"
title = "a paper"
page = "results.md"
own = ["Ours"]

[[readings]]
name = "default"
experiment = "first"

[[readings]]
name = "other"
experiment = "second"

[[statements]]
where = "Fig. 1"
text = "Delivery rises"
paper = "rising"
claims = ["It rises", "It rises twice"]
cause = "The buffers are small."

[[statements]]
where = "Fig. 2"
text = "Nobody can measure it"
cause = "The paper does not say how it is measured."
"""


def write_statements(folder: Path, text: str = STATEMENTS) -> Path:
    (folder / "experiment").mkdir(exist_ok=True)
    (folder / "experiment" / "statements.toml").write_text(text)
    return folder


@pytest.fixture
def papers(tmp_path: Path) -> list[PaperStatements]:
    return read_statements(write_statements(tmp_path))


def claim(statement: str, holds: bool | None, experiment: str = "first", ours: float = 1.5) -> Claim:
    return Claim(
        experiment=experiment, figure="f", statement=statement, paper=None, ours=ours, low=1.0, high=2.0, holds=holds
    )


def verdict_of(papers: list[PaperStatements], *claims: Claim) -> Verdict:
    return join_statements(papers, claims)[0].rows[0].verdict


def test_a_statement_is_reproduced_if_all_its_claims_hold(papers: list[PaperStatements]) -> None:
    assert verdict_of(papers, claim("It rises", True), claim("It rises twice", True)) is Verdict.REPRODUCED
    assert verdict_of(papers, claim("It rises", True), claim("It rises twice", False)) is Verdict.NOT_REPRODUCED
    assert verdict_of(papers, claim("It rises", True), claim("It rises twice", None)) is Verdict.OPEN


def test_a_statement_cannot_be_judged_without_all_its_claims(papers: list[PaperStatements]) -> None:
    assert verdict_of(papers) is Verdict.OPEN
    assert verdict_of(papers, claim("It rises", True)) is Verdict.OPEN
    assert join_statements(papers, [])[0].rows[1].verdict is Verdict.OPEN, "it has no claims"


def test_another_reading_is_named_where_the_statement_holds_in_it(papers: list[PaperStatements]) -> None:
    default = [claim("It rises", False, ours=3.5), claim("It rises twice", True)]
    other = [claim("It rises", True, "second", 7.5), claim("It rises twice", True, "second")]
    (found,) = join_statements(papers, [*default, *other])
    assert found.rows[0].verdict is Verdict.IN_A_READING
    page = evidence_markdown([found])
    measured = "3.50 (1.00 to 2.00) | other: 7.50 (1.00 to 2.00)"
    assert f"| Fig. 1 | Delivery rises | rising | {measured} | with reading other | The buffers" in page
    assert "- **009**, a paper: of 2 statements, 1 in a reading, 1 cannot be judged." in page


def test_a_claim_that_belongs_to_no_statement_is_refused(papers: list[PaperStatements]) -> None:
    with pytest.raises(UserError, match="'Something else' belongs to no statement of paper 009"):
        join_statements(papers, [claim("Something else", True)])


def test_our_own_hypotheses_have_their_own_table(papers: list[PaperStatements]) -> None:
    page = evidence_markdown(join_statements(papers, [claim("Ours", False)]))
    assert "| 009 | Ours | 1.50 (1.00 to 2.00) | fails |" in page.split("## Our own hypotheses")[1]


def test_a_statement_that_is_not_reproduced_must_say_why(tmp_path: Path) -> None:
    papers = read_statements(write_statements(tmp_path, STATEMENTS.replace('cause = "The buffers are small."', "")))
    (found,) = join_statements(papers, [claim("It rises", True), claim("It rises twice", True)])
    assert found.without_cause() == []
    (found,) = join_statements(papers, [claim("It rises", False), claim("It rises twice", True)])
    assert [one.text for one in found.without_cause()] == ["Delivery rises"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('cause = "The paper does not say how it is measured."', "", "has no claims"),
        ('own = ["Ours"]', 'own = ["It rises"]', "belongs to a statement of the paper"),
        ('claims = ["It rises", "It rises twice"]', 'claims = ["It rises", "It rises"]', "belongs to two statements"),
        ('text = "Delivery rises"', f'text = "{"rises " * 20}"', "more than 16 words"),
    ],
)
def test_a_file_of_statements_is_checked(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_statements(write_statements(tmp_path, STATEMENTS.replace(old, new)))


def test_the_html_page_loads_nothing(papers: list[PaperStatements]) -> None:
    page = evidence_html(join_statements(papers, [claim("It rises", True), claim("It rises twice", True)]))
    assert "<table>" in page
    assert "http" not in page.split("</style>")[1]


def made_up_results(experiment: Experiment) -> Results:
    """Results in which every metric is near 1 at every point, with the first twenty seeds."""
    records: list[Record] = []
    for point in experiment.points:
        for seed in experiment.seeds[:20]:
            record: Record = {"experiment": experiment.name, "point": point.name, "seed": seed, "error": None}
            found = {metric: spread(1.0, metric, point.name, seed) for metric in experiment.metrics}
            records.append({**record, **metric_columns(found)})
    return Results(experiment, records, Path())


@pytest.mark.parametrize("paper", read_statements(), ids=lambda paper: paper.paper)
def test_every_claim_of_a_papers_experiments_belongs_to_a_statement(paper: PaperStatements) -> None:
    claims = [one for name in paper.experiments for one in evaluate_claims(made_up_results(load_experiment(name)))]
    (found,) = join_statements([paper], claims)
    stated = {one.statement for one in claims}
    for statement in paper.statements:
        missing = set(statement.claims) - stated
        assert not missing, f"{statement.where}: the experiment has no claims {missing}"
    assert set(paper.own) <= stated
    assert all(row.default is not None for row in found.rows if row.statement.claims)


def test_the_command_writes_both_pages(tmp_path: Path) -> None:
    (paper,) = [one for one in read_statements() if one.paper == "004"]
    claims = evaluate_claims(made_up_results(load_experiment("adaptive")))
    report = tmp_path / "report"
    report.mkdir()
    (report / "claims.json").write_bytes(msgspec.json.encode([one.as_row() for one in claims]))
    done = call("evidence", report, "--out", tmp_path / "evidence.md", "--html", tmp_path / "evidence.html")
    assert f"{sum(len(one.statements) for one in read_statements())} statements" in done.out
    assert f"**004**, {paper.title}: of {len(paper.statements)} statements" in (tmp_path / "evidence.md").read_text()
    assert "<title>Evidence</title>" in (tmp_path / "evidence.html").read_text()


def test_a_folder_without_a_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="carrycast report"):
        read_claims([tmp_path])


def test_an_experiment_in_two_reports_is_refused(tmp_path: Path) -> None:
    rows = msgspec.json.encode([replace(claim("It rises", True)).as_row()])
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "claims.json").write_bytes(rows)
    with pytest.raises(UserError, match="has the experiment first too"):
        read_claims([tmp_path / "a", tmp_path / "b"])
