"""Every block of code on every page is tried by a test, or stands in a list with the reason why not.

Commands of carrycast and blocks of Python are tried by `test_docs_commands.py` and `test_docs_python.py`. TOML is
parsed here, as the scenario, experiment or configuration that it is a part of. Other blocks are listed below.
"""

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from carrycast.analysis.spark.definition import Definition
from carrycast.core.settings import parse_settings
from carrycast.node.config import config_from
from carrycast.node.config_file import parse_config_tables
from carrycast.sim.scenario import Scenario
from tests.cli.console import REPOSITORY, call
from tests.cli.docs_pages import BLOCK, PAGES, SHELLS

SCENARIO = {"name": "page", "duration_s": 60.0, "nodes": 10, "area_m": [500, 500]}
"""What a part of a scenario needs around it."""
SCENARIO_PAGES = {
    "docs/asp.md", "docs/community.md", "docs/csma.md", "docs/faults.md", "docs/fleets.md",
    "docs/mobility.md", "docs/requested-metrics.md", "docs/scenario-workloads.md",
    "docs/radios.md", "docs/scenarios.md", "src/carrycast/protocols/overlay/README.md",
}  # fmt: skip
EXPERIMENT_PAGES = {"docs/experiment-file.md"}
NODE_PAGES = {
    "docs/keys.md", "docs/live.md", "docs/live-configuration.md", "docs/mqtt.md", "docs/policy.md",
    "docs/start-developer.md",    "docs/telemetry.md",
}  # fmt: skip
BY_ANOTHER_TEST = {
    ("docs/deploy.md", "toml"): "tests/live/test_deploy.py",
    ("docs/deploy.md", "sh"): "tests/live/test_deploy.py",
    ("docs/maps.md", "toml"): "tests/unit/maps/test_reader.py",
    ("docs/mqtt.md", "sh"): "tests/gateway/test_tutorial.py",
    ("docs/policy.md", "policy"): "tests/simulation/test_policy_docs.py",
    ("docs/policy-language.md", "conflict"): "tests/simulation/test_policy_docs.py",
    ("docs/traces.md", "sql"): "tests/unit/trace/test_docs.py",
    ("docs/tutorial-flood-watch.md", "toml"): "tests/live/test_tutorial_flood_watch.py",
    ("docs/tutorial-flood-watch.md", "text"): "tests/live/test_tutorial_flood_watch.py",
    ("docs/tutorial-flood-watch.md", "sh"): "tests/live/test_tutorial_flood_watch.py",
    ("docs/tutorial-processors.md", "toml"): "tests/live/test_tutorial.py",
    ("docs/tutorial-processors.md", "text"): "tests/live/test_tutorial.py",
    ("docs/tutorial-processors.md", "sh"): "tests/live/test_tutorial.py",
}
"""Blocks that another test tries, by page and language."""
NOT_TRIED = {
    ("CONTRIBUTING.md", "toml"): "an entry point of a package; tests/cli/test_new_plugin.py makes and installs one",
    ("docs/architecture/call-sequences.md", "mermaid"): "a diagram",
    ("docs/architecture/call-sequences.md", ""): "handlers and their calls, as a list",
    ("docs/crosschecks.md", ""): "needs ns-3 and its headers, and runs both simulators for minutes",
    ("docs/claims.md", "toml"): "one line of a claim, without its table",
    ("docs/drift.md", "text"): "a drawing of nodes",
    ("docs/filters.md", ""): "the grammar; tests/unit/matching tests the parser",
    ("docs/mobility.md", "text"): "two formulas",
    ("docs/mqtt.md", ""): "the configuration of another broker, which the tests do not install",
    ("docs/policy-language.md", "text"): "the form of a policy, with words in place of values",
    ("docs/results-ns3-radio.md", ""): "needs ns-3 and its headers, and runs both simulators for minutes",
    ("docs/security.md", ""): "the messages of a handshake in the notation of Noise",
    ("docs/tutorial-flood-watch.md", ""): "a drawing of nodes",
    ("docs/tutorial-processors.md", ""): "a drawing of nodes",
    ("src/carrycast/protocols/overlay/README.md", ""): "the messages of a move, in their order",
}
"""Blocks that are no code that could run, by page and language."""
COMMANDS = {
    "docs/deploy.md": "needs root, systemd or Docker; tests/live/test_deploy.py follows the page without them",
    "docs/mqtt.md": "tests/gateway/test_tutorial.py runs them where mosquitto is installed",
    "docs/start-developer.md": "those of docs/mqtt.md",
}
"""Pages with commands of other programs that are not run here, and why."""


class Block(NamedTuple):
    """A block of code on a page, with the number of blocks before it."""

    page: str
    number: int
    language: str
    text: str

    @property
    def label(self) -> str:
        return f"{self.page}, block {self.number}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for number, (language, text) in enumerate(BLOCK.findall(page.read_text("utf-8")), 1):
            yield Block(str(page.relative_to(REPOSITORY)), number, language, text)


BLOCKS = list(blocks())
TOML = [block for block in BLOCKS if block.language == "toml"]


def other_commands(block: Block) -> list[str]:
    """The lines of a block of commands that are not carrycast's; none if it holds no commands."""
    lines = [line for line in block.text.replace("\\\n", " ").splitlines() if line.strip()]
    mine = [line for line in lines if re.match(r"(?:\$ )?(?:\w+=\S+ )*carrycast ", line)]
    is_shell = bool(mine) or block.language in ("sh", "bash", "console") or all(map(is_command, lines))
    return [line for line in lines if line not in mine] if is_shell else []


def is_command(line: str) -> bool:
    return re.match(r"(make|pip install|python|sleep|kill) ", line) is not None


def test_no_block_is_indented() -> None:
    """`BLOCK` would not see it."""
    for page in PAGES:
        assert not re.search(r"^[ \t]+```", page.read_text("utf-8"), re.MULTILINE), page


def test_every_block_is_tried_or_listed() -> None:
    missing = []
    for block in BLOCKS:
        key = (block.page, block.language)
        tried = (
            block.language == "python"
            or (block.language in SHELLS and "carrycast " in block.text and not key_is_listed(key))
            or (block.language in SHELLS and other_commands(block))
            or (block.language == "toml" and block.page in SCENARIO_PAGES | EXPERIMENT_PAGES | NODE_PAGES)
            or (block.language == "json" and block.page == "docs/scenario-workloads.md")
            or is_json_lines(block)
            or is_table(block)
            or is_output(block)
        )
        if not tried and not key_is_listed(key):
            missing.append(f"{block.label} ({block.language or 'no language'}): {block.text.splitlines()[0]}")
    assert not missing, "\n".join(missing)


def key_is_listed(key: tuple[str, str]) -> bool:
    return key in BY_ANOTHER_TEST or key in NOT_TRIED


def test_lists_name_only_what_there_is() -> None:
    there = {(block.page, block.language) for block in BLOCKS}
    assert set(NOT_TRIED) | set(BY_ANOTHER_TEST) <= there
    for (page, _), test in BY_ANOTHER_TEST.items():
        assert Path(page).name in (REPOSITORY / test).read_text("utf-8"), f"{test} does not read {page}"
    assert set(COMMANDS) <= {block.page for block in BLOCKS if other_commands(block)}


@pytest.mark.parametrize("block", [block for block in TOML if block.page in SCENARIO_PAGES], ids=lambda one: one.label)
def test_a_part_of_a_scenario_has_keys_and_values_that_scenarios_have(block: Block) -> None:
    parse_settings({**SCENARIO, **tomllib.loads(block.text)}, Scenario, block.label)


@pytest.mark.parametrize(
    "block", [block for block in TOML if block.page in EXPERIMENT_PAGES], ids=lambda one: one.label
)
def test_a_part_of_an_experiment_has_keys_and_values_that_experiments_have(block: Block) -> None:
    whole = next(one for one in TOML if one.page == block.page)
    parse_settings({"name": "page", **tomllib.loads(whole.text), **tomllib.loads(block.text)}, Definition, block.label)


@pytest.mark.parametrize("block", [block for block in TOML if block.page in NODE_PAGES], ids=lambda one: one.label)
def test_a_part_of_a_configuration_is_accepted(block: Block, tmp_path: Path) -> None:
    tables = tomllib.loads(block.text)
    listen = {} if "interfaces" in tables else {"listen": {"port": 7400}}
    if "keys" in tables:
        # Their files are secrets of the reader. The names and types of the keys are checked, the files are not.
        parse_config_tables({"name": "car", **listen, **tables}, block.label)
    else:
        config_from({"name": "car", **listen, **tables}, tmp_path)


def is_json_lines(block: Block) -> bool:
    return block.page == "docs/client-api.md"


@pytest.mark.parametrize("block", [block for block in BLOCKS if is_json_lines(block)], ids=lambda one: one.label)
def test_messages_of_the_client_api_are_json_objects(block: Block) -> None:
    """A message may be broken into lines; tests/live/test_values.py and test_control.py send such messages."""
    decoder, text = json.JSONDecoder(), re.sub(r"\s+", " ", block.text).strip()
    while text:
        value, end = decoder.raw_decode(text)
        assert {"op", "answer"} & set(value), text
        text = text[end:].strip()


def test_the_line_of_an_event_file_is_one() -> None:
    [block] = [block for block in BLOCKS if block.language == "json"]
    assert set(json.loads(block.text)) == {"time_s", "node", "attributes", "payload"}


def is_table(block: Block) -> bool:
    return block.page == "docs/movement-files.md" and block.text.startswith("time_s,node")


def test_the_table_of_movement_is_read(tmp_path: Path) -> None:
    [block] = [block for block in BLOCKS if is_table(block)]
    (tmp_path / "walk.csv").write_text(block.text)
    done = call("contacts", tmp_path / "walk.csv", "--range", "300", "--out", tmp_path / "out")
    assert done.status == 0, done.err


def is_output(block: Block) -> bool:
    """What a command prints: of these pages, other tests compare it."""
    return (block.page == "docs/fleets.md" and block.text.startswith("rejected ")) or block.text.startswith("filter: ")


@pytest.mark.parametrize(
    ("page", "line"),
    [
        (block.page, line)
        for block in BLOCKS
        if not key_is_listed((block.page, block.language))
        for line in other_commands(block)
    ],
)
def test_a_command_of_another_program_names_what_there_is(page: str, line: str) -> None:
    words = line.removeprefix("$ ").split()
    if words[0] in ("sleep", "kill"):
        return
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)
    elif words[0] == "python" and "-m" in words:
        module = words[words.index("-m") + 1]
        # Profilers run another module.
        module = words[words.index("-m", words.index("-m") + 1) + 1] if words.count("-m") > 1 else module
        assert importlib.util.find_spec(module) is not None, module
    else:
        assert page in COMMANDS or line.startswith("pip install "), line
