"""Killed processes: stored events are not lost, and acknowledged events are not delivered again."""

from pathlib import Path

import pytest

from benchmarks.kills import LINE, SUBJECTS, VICTIMS, World, kill_often, main
from carrycast.core.protocol import KeepsEvents
from carrycast.core.protocol.registry import find_protocol, protocol_names


def check(made: World) -> None:
    assert len(made.stored) > 5
    assert made.lost() == set(), "acknowledged as stored, and lost"
    assert made.repeated() == [], "confirmed, and delivered again"
    assert made.unmarked() == [], "delivered again without a word"
    assert made.flaws == [], "the books of a node do not balance"


def test_every_protocol_that_keeps_events_is_killed() -> None:
    assert set(SUBJECTS) == {name for name in protocol_names() if issubclass(find_protocol(name), KeepsEvents)}


def test_killed_nodes_and_applications_lose_nothing_and_repeat_nothing_confirmed(tmp_path: Path) -> None:
    check(kill_often(tmp_path, ["publisher", "subscriber", "application"], times=3, seed=1))


def test_a_killed_relay_brings_the_only_copy_when_it_is_back(tmp_path: Path) -> None:
    check(kill_often(tmp_path, ["relay"], times=3, seed=3, nodes=LINE, protocol="first_contact"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", SUBJECTS)
def test_every_protocol_that_keeps_events_survives_kills_of_everybody(tmp_path: Path, protocol: str) -> None:
    victims = [victim for victim in VICTIMS if victim != "relay" or SUBJECTS[protocol].relays]
    nodes = LINE if SUBJECTS[protocol].relays else ("publisher", "subscriber")
    check(kill_often(tmp_path, victims, times=3, seed=5, nodes=nodes, protocol=protocol))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_hundred_kills_each(victim: str) -> None:
    assert main(["--kills", "100", "--victim", victim, "--seed", "2"]) == 0
