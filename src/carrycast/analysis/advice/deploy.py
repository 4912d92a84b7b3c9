"""Node configurations for the recommended protocol: one file for each node, ready for `carrycast node`."""

import re
from collections import Counter
from pathlib import Path

from carrycast.analysis.advice.advisor import Candidate, apply_candidate
from carrycast.analysis.spark import write_atomically
from carrycast.core.protocol import Capability
from carrycast.sim.mobility import FleetMovement
from carrycast.sim.scenario import BeaconMode, Scenario

MOST_FILES = 1000
"""A larger fleet gets files for its first nodes only; the others would differ in their name alone."""
GROUP = "239.255.77.77:7401"
"""A port of its own: a socket bound to all addresses of a port also takes the datagrams of a group on that port."""
PORT = 7400
LONGEST_NAME = 48
"""Characters of a vehicle's name in that of its node, which has up to 64 with a number."""


def write_node_configurations(scenario: Scenario, candidate: Candidate, folder: Path) -> int:
    """Write a file for each node, called like the node; return the number of files."""
    folder.mkdir(parents=True, exist_ok=True)
    count = min(scenario.nodes, MOST_FILES)
    names = name_nodes(scenario)
    # Roles drawn at random are not written: the operator decides which real nodes have them.
    fixed = {
        role: names if isinstance(those, str) else [names[node] for node in those]
        for role, those in scenario.roles.items()
        if those == "all" or isinstance(those, list)
    }
    plan = apply_candidate(scenario, candidate).make_stack_plan()
    needs = plan.protocol.needs | plan.settings.needs()
    for name in names[:count]:
        write_atomically(folder / f"{name}.toml", node_configuration(name, scenario, candidate, fixed, needs).encode())
    return count


def name_nodes(scenario: Scenario) -> list[str]:
    """The names of the nodes: those of the vehicles of a fleet, else `node-0` and so on.

    A node's name is also that of its files, so other characters become hyphens. Vehicles whose names are not distinct
    then, whatever their case, also have their number.
    """
    width = len(str(scenario.nodes - 1))
    model = scenario.mobility_model()
    if not isinstance(model, FleetMovement):
        return [f"node-{node:0{width}d}" for node in range(scenario.nodes)]
    vehicles = model.vehicle_names()[: scenario.nodes]
    names = [re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:LONGEST_NAME] for name in vehicles]
    uses = Counter(name.lower() for name in names)
    numbered = [
        name if name and uses[name.lower()] == 1 else f"{name or 'node'}-{number:0{width}d}"
        for number, name in enumerate(names)
    ]
    distinct = len({name.lower() for name in numbered}) == scenario.nodes
    return numbered if distinct else [f"node-{node:0{width}d}" for node in range(scenario.nodes)]


def node_configuration(
    name: str, scenario: Scenario, candidate: Candidate, roles: dict[str, list[str]], needs: frozenset[Capability]
) -> str:
    """A configuration with the evaluated protocol and the beacon settings of the scenario."""
    lines = [
        f"# {candidate.label}, as `carrycast advise` recommends it for {scenario.name}.",
        f"# Run it with: carrycast node {name}.toml",
        f'name = "{name}"',
        f"roles = {_toml_value([role for role, those in roles.items() if name in those])}",
        *([f"area_m = {_toml_value(scenario.area_m)}"] if Capability.AREA in needs else []),
        "",
        "# Every address of this machine; name one, or an interface, if it has several.",
        "[listen]",
        'host = "0.0.0.0"',
        f"port = {PORT}",
        "",
        "# Nodes in reach hear one datagram to the group.",
        "[discovery]",
        f'group = "{GROUP}"',
    ]
    if isinstance(scenario.discovery, BeaconMode):
        lines += [f"period_s = {scenario.discovery.period_s!r}", f"missed = {round(scenario.discovery.missed)}"]
    lines += ["", *_toml_table("protocol", candidate.protocol)]
    if Capability.DIRECTORY in needs:
        lines += ["", *_toml_table("directory", dict(roles))]
    if Capability.DURABLE_STORE in needs:
        lines += ["", "[store]", f'file = "{name}.db"']
    lines += ["", "[control]", f'socket = "{name}.sock"', "", "[trace]", 'level = "full"', 'directory = "traces"']
    return "\n".join(lines) + "\n"


def _toml_table(name: str, table: dict[str, object]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in table.items())]


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
