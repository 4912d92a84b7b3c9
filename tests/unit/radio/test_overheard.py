"""Unicasts that others can read: told by a medium that is asked to, and by no other."""

import pytest

from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.radio.dot11 import CsmaRadio
from tests.unit.radio.test_disk import Bench
from tests.validation.cell import Cell, Point

# A line: 0 and 2 hear 1, and 3 hears 2 alone.
LINE: list[Point] = [(0, 0), (200, 0), (400, 0), (600, 0)]


def overheard_in_cell(promiscuous: bool, target: int | None) -> list[tuple[int, ...]]:
    cell = Cell(CsmaRadio(retry_limit=2), LINE)
    cell.medium.promiscuous = promiscuous
    cell.send(1, target, 512)
    cell.run(1)
    return cell.bystanders


def test_csma_tells_who_else_could_read_a_unicast() -> None:
    assert overheard_in_cell(True, 2) == [(0,)]
    assert overheard_in_cell(True, None) == [], "a broadcast is for everybody"
    assert overheard_in_cell(False, 2) == []


def test_csma_tells_it_of_each_attempt_also_where_the_target_hears_nothing() -> None:
    assert overheard_in_cell(True, 3) == [(0, 2)] * 2


@pytest.mark.parametrize("promiscuous", [True, False])
def test_the_disk_tells_who_else_was_in_reach(promiscuous: bool) -> None:
    bench = Bench(DiskRadio())
    bench.medium.promiscuous = promiscuous
    bench.transmit(1)
    bench.transmit(None)
    assert bench.run().bystanders == ([(2, 3)] if promiscuous else [])
