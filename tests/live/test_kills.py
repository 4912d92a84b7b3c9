"""What was acknowledged as stored is not lost, and what was confirmed does not come again, whoever is killed."""

from pathlib import Path

import pytest

from tests.live.kills import World, kill_often

VICTIMS = ("publisher", "subscriber", "application")
LINE = ("publisher", "relay", "subscriber")


def check(made: World) -> None:
    assert len(made.stored) > 20
    assert made.lost() == set(), "acknowledged as stored, and lost"
    assert made.repeated() == [], "confirmed, and delivered again"
    assert made.unmarked() == [], "delivered again without a word"


@pytest.mark.timeout(300)
def test_killed_nodes_and_applications_lose_nothing_and_repeat_nothing_confirmed(tmp_path: Path) -> None:
    check(kill_often(tmp_path, list(VICTIMS), times=3, seed=1))


@pytest.mark.timeout(300)
def test_a_killed_relay_brings_what_it_carries_when_it_is_back(tmp_path: Path) -> None:
    check(kill_often(tmp_path, ["relay"], times=5, seed=3, nodes=LINE))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_kills_of_a_relay(tmp_path: Path) -> None:
    check(kill_often(tmp_path, ["relay"], times=100, seed=4, nodes=LINE))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_hundred_kills_each(tmp_path: Path, victim: str) -> None:
    check(kill_often(tmp_path, [victim], times=100, seed=2))
