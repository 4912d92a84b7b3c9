"""The waist has no doors without a floor: every method has a source in both worlds and somebody who uses it.

What has none yet stands in the tables below, by name; it gets them with its first user. A line that is no longer true
fails, so what is owed is known at any time.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from carrycast.core.protocol import Host, Port, Protocol, StateMachine
from carrycast.core.protocol.optional import INTERFACES

SOURCE = Path(__file__).parents[2] / "src" / "carrycast"
WORLDS = ("simulation", "live")
USERS = ("dissemination", "services", "routing", "parts", "protocol")

# Told from layer to layer, within the stack.
BETWEEN_LAYERS = frozenset({"on_packet", "on_unreachable", "on_route"})
# Of each input, the worlds that never give it. Beacons, which both worlds have, tell of links within the stack.
INPUTS_OWED: dict[str, set[str]] = {
    # Simulated publishers wait for nothing.
    "on_count": {"simulation"},
    "on_processor_gone": {"simulation", "live"},
}
TOLD_BY_BEACONS = frozenset({"on_link_up", "on_link_down"})
# What no machine of the package asks its host, or its port, for.
READINGS_OWED: frozenset[str] = frozenset()
EFFECTS_OWED: frozenset[str] = frozenset()


def calls(folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Every `something.name(...)` or `something.name` in the source of some folders, as (what it is of, name)."""
    for folder in folders:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            if path.name.startswith("test_") or "tests" in path.relative_to(SOURCE).parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    of = node.value
                    named = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
                    yield named.removeprefix("_"), node.attr


def inputs() -> set[str]:
    kinds = (StateMachine, Protocol, *INTERFACES)
    return {name for kind in kinds for name in vars(kind) if name.startswith("on_")} - BETWEEN_LAYERS


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_gives_every_input_but_those_it_owes(world: str) -> None:
    given = {name for _, name in calls((world,))}
    missing = {name for name in inputs() - TOLD_BY_BEACONS if name not in given}
    assert missing == {name for name, worlds in INPUTS_OWED.items() if world in worlds}


def test_somebody_reads_whatever_a_host_tells_but_for_what_is_owed() -> None:
    told = {name for name in (*vars(Host), *Host.__annotations__) if not name.startswith("_")}
    read = {name for of, name in calls(USERS) if of == "host"}
    # What is offered is asked when a stack is made, and `stand_on` and `read_as` are how it is wired.
    assert told - read - {"offers", "stand_on", "read_as"} == READINGS_OWED


def test_somebody_uses_whatever_a_port_does_but_for_what_is_owed() -> None:
    does = {name for name in vars(Port) if not name.startswith("_")}
    used = {name for of, name in calls(USERS) if of == "port"}
    assert does - used == EFFECTS_OWED
