"""Every command in the docs is one: it parses, what it names exists, and those that are quick run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from driftcast.cli import parser
from driftcast.pipeline.definition import Definition
from driftcast.pipeline.experiment import FILE, FOLDER, read_definition
from driftcast.scenario.overrides import chosen_scenario, parse_assignment
from driftcast.scenario.protocol_text import parse_protocols, protocol_label
from tests.cli.console import REPOSITORY, call

PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "examples").rglob("*.md")),
    *sorted((REPOSITORY / "src").rglob("*.md")),
]
SHELLS = ("", "sh", "bash", "console")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
MINUTES_OF_WORK = ("community", "head-to-head", "traffic-report", "police-surveillance", "sparse")
"""Examples that take longer than a test may; that they load is checked like that of all others."""
QUICK = ("run", "protocols", "routers", "applications", "mobility", "experiments", "check", "show", "new")


class Written(NamedTuple):
    """A command as a page has it."""

    page: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return shlex.join(("driftcast", *self.words))


def commands(page: Path) -> Iterator[Written]:
    """Those of its blocks, without what the shell does with them."""
    for language, block in BLOCK.findall(page.read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines() if language in SHELLS else ():
            if (command := re.match(r"(?:\$ )?(?:\w+=\S+ )*(driftcast .*)", line)) is not None:
                words = shlex.split(command[1], comments=True)
                end = next((place for place, word in enumerate(words) if word in ("&", "|", ">")), len(words))
                yield Written(str(page.relative_to(REPOSITORY)), tuple(words[1:end]))


def mentions(page: Path) -> Iterator[str]:
    """What stands in the text itself; some of it is a part of a command only."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    yield from (" ".join(found.split()) for found in re.findall(r"`driftcast ([^`]+)`", text))


WRITTEN = list(dict.fromkeys(command for page in PAGES for command in commands(page)))


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
        for name in named:
            check_experiment(name)
    scenario = getattr(arguments, "scenario", None) or getattr(arguments, "source", None)
    if isinstance(scenario, Path) and scenario.is_file():
        settings = dict(parse_assignment(text) for text in getattr(arguments, "set", []))
        for protocol in chosen_protocols(getattr(arguments, "protocols", None) or getattr(arguments, "protocol", None)):
            chosen_scenario(scenario, protocol, settings)


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
        kind = top.kinds.get(word)
        assert kind is not None, f"{page.name}: driftcast {word}"
        kinds = [kind, *kind.kinds.values()]
        for option in re.findall(r"(?<!\S)--[\w-]+", " ".join(rest)):
            assert any(option in one.options for one in kinds), f"{page.name}: driftcast {text}"


def quick(page: str) -> list[Written]:
    """What takes no more than a second or two, in the order of the page: a command may need what one before it left."""
    return [
        command
        for command in WRITTEN
        if command.page == page
        and command.words[0] in QUICK
        and not any(Path(word).stem in MINUTES_OF_WORK for word in command.words)
        # Of a reader's own files and sweeps, or until somebody stops them; test_fleets.py runs those of its page.
        and not any(
            word.startswith(("scenario.", "node-", "out/sweep", "out/reproduce", "out/buses", "FILE"))
            for word in command.words
        )
        and "--live" not in command.words
    ]


@pytest.mark.parametrize("page", [page for page in dict.fromkeys(one.page for one in WRITTEN) if quick(page)])
def test_quick_commands_run(page: str, workplace: Path) -> None:
    for command in quick(page):
        words = (*command.words, "--dir", "mine") if command.words[0] == "new" else command.words
        done = call(*words)
        assert done.status == 0, f"{command.text}: {done.err}"
