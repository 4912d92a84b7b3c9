"""Who takes part: every protocol there is, as it comes, in its variants, and with the settings that matter most."""

from collections.abc import Sequence
from dataclasses import dataclass

from carrycast.core.protocol.registry import protocol_named, protocol_names
from carrycast.errors import UserError
from carrycast.sim.scenario.overrides import apply_overrides, parse_protocol, parse_protocols, protocol_label
from carrycast.sim.scenario.scenario import Scenario

# Of settings that trade gain for cost, some values, cheap to dear. The defaults run anyway.
LEVERS = (
    "gossip:p=0.3",
    "gossip:p=0.5",
    "gossip:p=0.9",
    "spray_and_wait:copies=2",
    "spray_and_wait:copies=4",
    "spray_and_wait:copies=16",
    "spray_and_wait:copies=32",
    "semi_probabilistic:tau=0.2",
    "semi_probabilistic:tau=0.6",
    "adaptive:tau=0.2",
    "adaptive:tau=0.6",
    "prophet:threshold=0.02",
    # These need nodes in a role, or a router, which any node can be or have.
    "tree:role=everybody",
    "tree/recovering:role=everybody",
)
SAME_AS_FLOODING = "processor_flooding"
"""Where a scenario has no processors."""


@dataclass(frozen=True)
class Candidate:
    """A protocol with its settings, and the scenario with it."""

    label: str
    protocol: dict[str, object]


@dataclass(frozen=True)
class LeftOut:
    """A protocol that cannot run on this fleet, and why not."""

    label: str
    reason: str


def candidates_for(scenario: Scenario, named: str | None = None) -> tuple[list[Candidate], list[LeftOut]]:
    """Those that can run, and those that cannot; of those named, if any are, each must."""
    tables = parse_protocols(named, "--candidates") if named is not None else _all()
    found: list[Candidate] = []
    left_out: list[LeftOut] = []
    for table in tables:
        label = protocol_label(table)
        if named is None and table["name"] == SAME_AS_FLOODING and not scenario.processors:
            left_out.append(LeftOut(label, "is flooding where there are no processors"))
            continue
        try:
            apply_overrides(scenario, {"protocol": table}, label)
        except UserError as error:
            if named is not None:
                raise
            left_out.append(LeftOut(label, str(error).removeprefix(f"{label}: ")))
            continue
        found.append(Candidate(label, table))
    if not found:
        raise UserError("no protocol can run on this fleet: " + "; ".join(one.reason for one in left_out[:2]))
    return found, left_out


def with_protocol(scenario: Scenario, candidate: Candidate) -> Scenario:
    """A scenario in which every node runs a candidate."""
    return apply_overrides(scenario, {"protocol": candidate.protocol}, candidate.label)


def _all() -> Sequence[dict[str, object]]:
    tables: list[dict[str, object]] = []
    for name in protocol_names():
        tables.append({"name": name})
        tables += [{"name": name, "variant": variant} for variant in protocol_named(name).variants]
    for text in LEVERS:
        table = parse_protocol(text)
        if table["name"] in protocol_names():
            tables.append(table)
    return tables
