"""Every command in the docs is one: it parses, what it names exists, and those that are quick run.

Those for live nodes run in `test_docs_live.py`, those that take long in `test_docs_long.py`.
"""

import re
from pathlib import Path

import pytest

from carrycast.analysis.spark.definition import Definition
from carrycast.analysis.spark.experiment import FILE, FOLDER, read_definition
from carrycast.cli import parser
from carrycast.sim.scenario.overrides import parse_assignment, parse_protocols, protocol_label, resolve_scenario
from tests.cli.console import REPOSITORY, call
from tests.cli.docs_pages import PAGES, WRITTEN, Written, mentions, of_page, pages_with


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like a checkout, in which commands may write."""
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (tmp_path / "night.policy").symlink_to(REPOSITORY / "examples" / "policy" / "night.policy")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pages_have_commands() -> None:
    assert len(WRITTEN) > 70, "the docs are read as they are written"
    assert {command.page for command in WRITTEN} >= {"README.md", "docs/live.md", "docs/policy.md"}


@pytest.mark.parametrize("command", WRITTEN, ids=lambda command: f"{command.page}: {command.text}")
def test_a_command_parses_and_what_it_names_exists(command: Written, workplace: Path) -> None:
    arguments = parser().parse_args(command.words)
    for word in command.words:
        if word.startswith("examples/") and "/run/" not in word:
            assert Path(word).exists(), f"{word} is not there"
    if command.words[0] in ("reproduce", "sweep"):
        named = getattr(arguments, "experiments", None) or [arguments.experiment]
        for name in named if not getattr(arguments, "vary", None) else ():
            check_experiment(name)
    scenario = getattr(arguments, "scenario", None) or getattr(arguments, "source", None)
    if isinstance(scenario, Path) and scenario.suffix == ".toml" and scenario.is_file():
        settings = dict(parse_assignment(text) for text in getattr(arguments, "set", []))
        for protocol in chosen_protocols(getattr(arguments, "protocols", None) or getattr(arguments, "protocol", None)):
            resolve_scenario(scenario, protocol, settings)


def chosen_protocols(text: str | None) -> list[str | None]:
    if text is None:
        return [None]
    assert all(protocol_label(protocol) for protocol in parse_protocols(text))
    # Commas stand between protocols, and between settings of one.
    return list(re.split(r",(?=\w+(?:[:/,]|$))", text))


def check_experiment(name: str) -> None:
    """Shipped, with that figure; a page may also name a file of the reader's own."""
    if name.endswith(".toml"):
        return
    name, _, figure = name.partition("/")
    found: list[Definition] = [
        definition
        for definition in map(read_definition, FOLDER.glob(f"*/{FILE}"))
        if name in (definition.name, *definition.aliases)
    ]
    assert found, f"there is no experiment {name}"
    assert not figure or figure in [entry.name for entry in found[0].figures]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_command_in_the_text_is_one(page: Path) -> None:
    top = parser()
    for text in mentions(page):
        word, *rest = text.split()
        kind = top.subcommands.get(word)
        assert kind is not None, f"{page.name}: carrycast {word}"
        kinds = [kind, *kind.subcommands.values()]
        for option in re.findall(r"(?<!\S)--[\w-]+", " ".join(rest)):
            assert any(option in one.options for one in kinds), f"{page.name}: carrycast {text}"


@pytest.mark.parametrize("page", pages_with("quick"))
def test_quick_commands_run(page: str, workplace: Path) -> None:
    for command in of_page(page, "quick"):
        words = (*command.words, "--out", "mine") if command.words[0] == "new" else command.words
        done = call(*words)
        assert done.status == 0, f"{command.text}: {done.err}"
