"""`carrycast --help` groups the commands; `carrycast help` explains topics and commands; options have one name."""

import argparse
import re
from collections.abc import Iterator

import pytest

from carrycast.cli import parser
from carrycast.cli.help_pages import GROUPS, TOPICS
from carrycast.core.matching import Filter
from tests.cli.console import REPOSITORY, call

PAGES = REPOSITORY / "src" / "carrycast" / "cli" / "topics"


def parsers(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command and subcommand."""
    for below in getattr(top, "subcommands", {}).values():
        yield below
        yield from parsers(below)


def test_every_command_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(parser().subcommands)


def test_help_lists_the_groups_with_a_sentence_for_each_command() -> None:
    lines = call("--help").out.splitlines()
    assert [line[:-1] for line in lines if line[:-1] in GROUPS] == list(GROUPS)
    listed = [line for line in lines if re.match(r"    \w", line)]
    assert len(listed) == len(parser().subcommands)
    for line in listed:
        assert re.fullmatch(r"    [a-z]+ +[A-Z].{10,70}\.", line), line


@pytest.mark.parametrize("below", [*parsers(parser())], ids=lambda below: below.prog)
def test_every_option_and_argument_is_explained(below: argparse.ArgumentParser) -> None:
    assert re.match(r"[A-Z].*\.", below.description or ""), below.prog
    for action in below._actions:
        assert action.help or action.dest in ("==SUPPRESS==",), f"{below.prog}: {action.dest}"
        for default in re.findall(r"\(default[^)]*", action.help or ""):
            assert default.startswith("(default: "), f"{below.prog}: {default}"


def test_topics_are_listed() -> None:
    told = call("help").out
    for topic in TOPICS:
        assert re.search(rf"^    {topic} +\w", told, re.MULTILINE)
    assert {path.stem for path in PAGES.glob("*.txt")} == set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_short_and_leads_to_a_page_that_exists(topic: str) -> None:
    text = call("help", topic).out
    lines = text.splitlines()
    assert 10 <= len(lines) <= 32
    assert max(map(len, lines)) <= 95
    named = re.findall(r"\b(?:docs/[\w-]+|CONTRIBUTING)\.md", text)
    assert named
    for page in named:
        assert (REPOSITORY / page).is_file(), page


@pytest.mark.parametrize("topic", TOPICS)
def test_the_commands_of_a_topic_exist(topic: str) -> None:
    top = parser()
    for line in re.findall(r"^ +carrycast (.*)", call("help", topic).out, re.MULTILINE):
        words = line.split("   ")[0].split()
        below = top.subcommands[words[0]]
        if len(words) > 1 and words[1] in below.subcommands:
            below = below.subcommands[words[1]]
        for option in [word for word in words if word.startswith("--")]:
            assert option in below.options, line


def test_the_filters_of_the_topic_are_filters() -> None:
    shown = re.findall(r"^    (\S.*)", call("help", "filters").out, re.MULTILINE)
    assert len(shown) == 6
    for text in shown:
        Filter(text.split("    ")[0])


def test_a_command_is_explained_as_by_its_own_help() -> None:
    assert call("help", "run") == call("run", "--help")
    assert call("help", "policy", "status") == call("policy", "status", "--help")


def test_a_topic_with_the_name_of_a_command_names_the_command() -> None:
    assert "carrycast metrics --help" in call("help", "metrics").out


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        (["filtrs"], "there is no topic or command 'filtrs'; did you mean 'filters'?"),
        (["policy", "histroy"], "did you mean 'history'?"),
        (["xyzzy"], "`carrycast help` lists the topics"),
    ],
)
def test_an_unknown_topic_is_told_with_what_there_is(topic: list[str], told: str) -> None:
    assert told in call("help", *topic).refusal()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["advise", "x", "--candidates", "flooding"], "--candidates is called --protocols now"),
        (["request", "--patience", "3"], "--patience is called --timeout now"),
        (["metrics", "x", "--from", "late.py"], "--from is called --metrics-from now"),
        (["metrics", "x", "--deliveries"], "--deliveries is called --level deliveries now"),
        (["policy", "status", "--of", "sea"], "--of is called --at-node now"),
        (["ingest", "x", "--fleet=buses"], "--fleet is called --name now"),
        (["new", "scenario", "mine", "--dir", "here"], "--dir is called --out now"),
        (["new", "protocol", "mine", "--dir", "here"], "--dir is called --out now"),
    ],
)
def test_the_former_name_of_an_option_is_refused_with_the_new_one(arguments: list[str], told: str) -> None:
    assert told in call(*arguments).refusal()


def test_former_names_are_not_offered() -> None:
    assert "--candidates" not in call("advise", "--help").out
    assert "--candidates" not in call("completion", "bash").out
