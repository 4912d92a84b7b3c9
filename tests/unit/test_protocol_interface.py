"""Every method of the protocol interface has a caller in both environments and a user among the protocols.

The tables below list the exceptions by name. A line that is no longer true fails.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from carrycast.core.protocol import Host, Port, Protocol, StateMachine
from carrycast.core.protocol.optional import INTERFACES

SOURCE = Path(__file__).parents[2] / "src" / "carrycast"
ENVIRONMENTS = ("sim", "node")
USERS = ("protocols", "services", "routers", "core/parts", "core/protocol")

# Told from layer to layer, within the stack.
BETWEEN_LAYERS = frozenset({"on_packet", "on_unreachable", "on_route"})
# For each input, the environments that never give it. Link changes come from beacons, within the stack.
UNUSED_INPUTS: dict[str, set[str]] = {
    # Simulated publishers wait for nothing.
    "on_await_replicas": {"sim"},
}
FROM_BEACONS = frozenset({"on_link_up", "on_link_down"})
# Host readings and port effects that no state machine of the package uses.
UNUSED_READINGS: frozenset[str] = frozenset()
UNUSED_EFFECTS: frozenset[str] = frozenset()


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


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_environment_gives_every_input_but_the_exceptions(environment: str) -> None:
    given = {name for _, name in calls((environment,))}
    missing = {name for name in inputs() - FROM_BEACONS if name not in given}
    assert missing == {name for name, environments in UNUSED_INPUTS.items() if environment in environments}


def test_every_host_reading_is_used_but_the_exceptions() -> None:
    told = {name for name in (*vars(Host), *Host.__annotations__) if not name.startswith("_")}
    read = {name for of, name in calls(USERS) if of == "host"}
    # The stack itself reads `offers`, and calls `attach_router` and `set_codec` to wire the layers.
    assert told - read - {"offers", "attach_router", "set_codec"} == UNUSED_READINGS


def test_every_port_effect_is_used_but_the_exceptions() -> None:
    does = {name for name in vars(Port) if not name.startswith("_")}
    used = {name for of, name in calls(USERS) if of == "port"}
    assert does - used == UNUSED_EFFECTS
