"""Report pages say how to cite carrycast and the papers of their experiments."""

import re

import pytest

from carrycast.analysis.reports.citation import citation_section, own_entry, paper_entry
from carrycast.analysis.spark.experiment import experiment_names, load_experiment
from carrycast.version import VERSION


def test_the_entry_of_carrycast_has_the_fields_of_the_citation_file() -> None:
    assert own_entry().splitlines() == [
        "@software{carrycast,",
        "  author = {{The carrycast developers}},",
        "  title = {{carrycast: content-based publish/subscribe for networks that move}},",
        f"  version = {{{VERSION}}},",
        "  year = {2026},",
        "}",
    ]


@pytest.mark.parametrize(
    ("paper", "lines"),
    [
        (
            "A. Ant, B. C. Bee: Buzz & hum: a study (007), sections 2.1 and 3",
            ["@misc{ant-buzz,", "  author = {A. Ant and B. C. Bee},", r"  title = {{Buzz \& hum: a study}},", "}"],
        ),
        ("B. Bee: The hive", ["@misc{bee-hive,", "  author = {B. Bee},", "  title = {{The hive}},", "}"]),
        ("an unpublished note", ["@misc{unpublished,", "  title = {{an unpublished note}},", "}"]),
    ],
)
def test_a_paper_becomes_an_entry(paper: str, lines: list[str]) -> None:
    assert paper_entry(paper).splitlines() == lines


def test_each_paper_of_the_experiments_has_one_entry() -> None:
    papers = [load_experiment(name).definition.paper for name in experiment_names()]
    page = citation_section(papers)
    keys = re.findall(r"^@misc\{(.+),$", page.replace("<pre>", "<pre>\n"), re.MULTILINE)
    assert sorted(keys) == [
        "chen-opportunistic",
        "costa-adaptive",
        "pongthawornkamol-analysis",
        "ristau-announcement",
        "sourlas-distribute",
    ]


def test_the_section_shows_text_as_text() -> None:
    page = citation_section(["", "<script>: x"])
    assert "<script>" not in page
    assert page.count("@software") == 2  # The entry, and the sentence about styles without it.
