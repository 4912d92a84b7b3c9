"""Subscriptions that name a processor, and processors that return payloads, from a scenario to what is delivered."""

import json
from pathlib import Path

import pytest

from carrycast.errors import UserError
from carrycast.sim.engine.simulation import Simulation
from carrycast.sim.scenario.draws import Drawable
from carrycast.sim.scenario.scenario import Scenario
from carrycast.sim.scenario.workload import SubscribeEntry, draw_workload
from carrycast.sim.testing import Net
from tests.simulation.modulating import Modulating
from tests.simulation.worlds import line, register

FUNCTIONS = """
import json

def grid(event):
    return {"kind": "grid", "cells": 4}, bytes(event.attributes["value"] for _ in range(4))

def both(event):
    return [{"part": 1}, ({"part": 2}, bytearray(b"two"))]

def counted(event, state):
    count = int(state or b"0") + 1
    return ({"count": count}, b"x" * count), str(count).encode()

def boxed(event, state):
    box = json.loads(state)
    return ({"inside": box["low"] <= event.attributes["value"] <= box["high"]}), state

def text(event):
    return {"a": 1}, "text"

def huge(event):
    return {"a": 1}, bytes((1 << 20) + 1)

def triple(event):
    return {"a": 1}, b"", b""
"""
NAMES = ("grid", "both", "counted", "boxed", "text", "huge", "triple")


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    register(monkeypatch, Modulating)
    (tmp_path / "f.py").write_text(FUNCTIONS)
    return tmp_path


def tables(base: Path) -> dict[str, object]:
    processors = [{"id": name, "function": f"f.py:{name}", "nodes": "all"} for name in NAMES]
    return {"base": str(base), "processors": processors}


def scenario(base: Path, **subscribe: object) -> Scenario:
    publish = [{"nodes": [1], "interval_s": 1.0, "to_s": 5.0, "attributes": {"value": {"integers": [0, 9]}}}]
    return line(
        **tables(base), protocol={"name": "modulating"}, publish=publish, subscribe=[{"nodes": [0, 2], **subscribe}]
    )


def made(base: Path, name: str, value: int = 7) -> list[tuple[dict[str, object], bytes]]:
    net = Net.line(2, "modulating", tables(base))
    net.subscribe(1, "value >= 0", processor=name)
    net.publish(0, {"value": value})
    net.run(1)
    return [(dict(event.attributes), event.payload) for event in net.list_delivered(1)]


def test_a_processor_may_return_a_payload_beside_attributes(base: Path) -> None:
    assert made(base, "grid") == [({"kind": "grid", "cells": 4}, b"\x07" * 4)]
    assert made(base, "both") == [({"part": 1}, b""), ({"part": 2}, b"two")]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("text", "processor_result: text returned a payload that is str, not bytes"),
        ("huge", "processor_result: huge returned a payload of 1048577 bytes; an event has 1048576"),
        ("triple", "processor_result: triple returned tuple, not a dict of attributes"),
    ],
)
def test_what_is_no_payload_is_an_error_of_the_processor(base: Path, name: str, told: str) -> None:
    net = Net.line(2, "modulating", tables(base))
    net.subscribe(1, "value >= 0", processor=name)
    net.publish(0, {"value": 1})
    net.run(1)
    assert net.list_delivered(1) == []
    assert [row["reason"] for row in net.rows("processor_error")] == [told]


def test_a_scenario_gives_subscriptions_a_processor_that_begins_with_a_state(base: Path) -> None:
    simulation = Simulation(scenario(base, filter="value >= 0", processor="counted", state="40"), 1)
    delivered: list[tuple[int, object, int]] = []
    simulation.recorder.on_delivery = lambda node, id, event: delivered.append(
        (node, event.attributes["count"], len(event.payload))
    )
    simulation.start()
    simulation.advance(2.5)
    assert delivered == [(0, 41, 41), (2, 41, 41), (0, 42, 42), (2, 42, 42), (0, 43, 43), (2, 43, 43)]


def test_parameters_are_drawn_for_each_subscription_and_come_as_json() -> None:
    parameters: dict[str, Drawable] = {"low": {"integers": [0, 4]}, "high": {"uniform": [5, 9]}, "name": "box"}
    entry = SubscribeEntry(nodes="all", processor="boxed", parameters=parameters)
    first = [one.subscription for one in draw_workload([entry], [], {}, 30, 1.0, 1).subscribes]
    assert {one.processor for one in first} == {"boxed"}
    boxes = [json.loads(one.state) for one in first]
    assert all(0 <= box["low"] <= 4 and 5 <= box["high"] <= 9 and box["name"] == "box" for box in boxes)
    assert len({one.state for one in first}) > 20
    assert [one.subscription for one in draw_workload([entry], [], {}, 30, 1.0, 1).subscribes] == first


def test_parameters_change_nothing_in_what_else_is_drawn() -> None:
    def filters(processor: str | None, parameters: dict[str, Drawable]) -> list[str]:
        entry = SubscribeEntry(
            filter="topic = {t}", draw={"t": {"integers": [1, 99]}}, processor=processor, parameters=parameters
        )
        return [one.subscription.filter for one in draw_workload([entry], [], {}, 1, 1.0, 1).subscribes]

    assert filters(None, {}) == filters("p", {"a": {"integers": [1, 9]}})


@pytest.mark.parametrize(
    ("subscribe", "told"),
    [
        ({"processor": "grad"}, "subscribe[0].processor: there is no processor 'grad'; [[processors]] has grid, both"),
        ({"state": "1"}, "subscribe[0]: state and parameters are for a processor; name it, or leave them out"),
        ({"parameters": {"a": 1}}, "subscribe[0]: state and parameters are for a processor"),
        (
            {"processor": "grid", "state": "1", "parameters": {"a": 1}},
            "subscribe[0]: state and parameters both say how the processor begins; give one of them",
        ),
        (
            {"processor": "grid", "parameters": {"a": {"choice": [1.0, float("inf")]}}},
            "subscribe[0].parameters.a: JSON has no infinite numbers; give a finite one",
        ),
        (
            {"processor": "grid", "parameters": {"a": {"dice": 6}}},
            "subscribe[0].parameters.a: a drawn value is a table",
        ),
        ({"processor": "grid", "state": "x" * (1 << 20) + "x"}, "subscribe[0].state: is longer than 1048576 bytes"),
    ],
)
def test_a_processor_that_cannot_begin_is_refused(base: Path, subscribe: dict[str, object], told: str) -> None:
    with pytest.raises(UserError) as refused:
        scenario(base, **subscribe)
    assert str(refused.value).startswith(f"line.toml: {told}")


def test_a_protocol_that_takes_no_notice_of_such_subscriptions_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Modulating, "serves_subscriptions", False)
    with pytest.raises(UserError) as refused:
        scenario(base, processor="grid")
    assert str(refused.value) == ("line.toml: subscribe[0].processor: modulating runs no processors for subscriptions")
