"""The load of a live node is that of its own work."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from carrycast.core.protocol import Capability
from carrycast.core.wire import Layer
from carrycast.node.runtime import load
from carrycast.node.runtime.host import HostFacts, LiveHost, find_capabilities
from carrycast.node.runtime.load import LoadMeter


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


def test_load_is_the_share_in_which_anything_of_the_node_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy = Clock(monkeypatch), LoadMeter(10.0)
    host = LiveHost(Layer.DISSEMINATION, HostFacts(), None, 0, busy)
    with busy:
        clock.now_s += 1
        with busy:
            clock.now_s += 1
        assert host.load(0.0) == pytest.approx(0.2), "two at a time are not twice as much"
        clock.now_s += 1
        assert host.load(0.0) == pytest.approx(0.3)
    clock.now_s += 7
    assert host.load(0.0) == pytest.approx(0.3)
    clock.now_s += 2
    assert host.load(0.0) == pytest.approx(0.1)


def test_a_handler_that_raises_has_worked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy = Clock(monkeypatch), LoadMeter(10.0)
    with suppress(RuntimeError), busy:
        clock.now_s += 5
        raise RuntimeError
    clock.now_s += 1
    assert busy.load() == pytest.approx(0.5)


def test_what_the_machine_does_is_not_the_load_of_a_node_that_rests() -> None:
    async def other_work() -> float:
        busy = LoadMeter(0.2)
        sum(range(2_000_000))
        await asyncio.sleep(0.05)
        return busy.load()

    assert asyncio.run(other_work()) == 0.0


def test_free_memory_is_told_where_the_system_tells_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 99 kB\nMemFree: 5 kB\nMemAvailable:   12 kB\n")
    monkeypatch.setattr(load, "_MEMINFO", told)
    host = LiveHost(Layer.DISSEMINATION, HostFacts(), None, 0)
    assert host.free_memory_bytes(0.0) == 12 * 1024
    assert {Capability.LOAD, Capability.MEMORY} <= host.offers
    told.write_text("MemAvailable: much\n")
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}[name])
    assert host.free_memory_bytes(0.0) == 3 * 4096

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    assert Capability.MEMORY not in find_capabilities(store=False, facts=HostFacts())
    with pytest.raises(LookupError, match="memory"):
        host.free_memory_bytes(0.0)
