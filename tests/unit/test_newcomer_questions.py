"""The layout, tried as a newcomer does: search the sources for the field's term, and look at the first few files."""

import re
import tomllib
from pathlib import Path

import pytest

SOURCE = next((Path(__file__).parents[2] / "src").iterdir())
QUESTIONS = tomllib.loads(Path(__file__).with_name("newcomer_questions.toml").read_text())["question"]
FIRST_FILES = 3
"""How many files of a search a newcomer opens."""


def found_by(term: str) -> list[str]:
    """The files of the sources that have the term, those first that have it most often; tests do not count."""
    pattern = re.compile(rf"(?<![a-z]){re.escape(term)}", re.IGNORECASE)
    counts = {}
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE)
        if not path.name.startswith("test_") and "tests" not in place.parts:
            counts[str(place)] = len(pattern.findall(path.read_text("utf-8")))
    return sorted((name for name, count in counts.items() if count), key=lambda name: (-counts[name], name))


def test_there_are_thirty_questions_or_more() -> None:
    assert len({question["ask"] for question in QUESTIONS}) >= 30


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["ask"])
def test_a_search_for_the_term_leads_to_the_file(question: dict[str, str]) -> None:
    assert question["file"] in found_by(question["term"])[:FIRST_FILES]
