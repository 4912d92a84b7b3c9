"""Random scenarios: a small network that mostly delivers, around settings that may be anything they are declared to be.

A case follows from its seed and its number alone. What is drawn is loaded once: settings that contradict each other are
drawn again, with fewer of them, so that most cases run. A few are spoiled on purpose, and must be refused in one line.
"""

from collections.abc import Mapping
from random import Random

from carrycast.core.protocol import (
    Advertises,
    AnswersRequests,
    RunsProcessors,
    StateMachine,
    UsesRouter,
    applications,
    find_protocol,
    find_router,
    protocol_names,
    router_names,
)
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.sim.scenario import (
    BeaconMode,
    ComputerSettings,
    EnergySettings,
    Fault,
    Scenario,
    ServiceSettings,
    check_scenario,
)
from carrycast.sim.testing.example_scenarios import example_tables
from carrycast.sim.testing.fuzz.case import FuzzCase
from carrycast.sim.testing.fuzz.places import Places
from carrycast.sim.testing.fuzz.spoiled import spoil
from carrycast.sim.testing.fuzz.values import Drawn, ScenarioBounds, Values, log_uniform
from carrycast.sim.testing.fuzz.workload import Workloads

ATTEMPTS = 6
SPOILED = 0.06
"""The share of cases that are spoiled on purpose."""
_WEIGHTS = ({"change_degree": 1.0}, {"colocation": 1.0}, {"change_degree": 0.25, "colocation": 0.75})

POLICY = """policy slow
roles cars, broker
if { battery < 0.3 }
then { set discovery.period_s = 4; run led 'off' }
"""


def draw_case(seed: int, index: int) -> FuzzCase:
    """The case of a number: the same on every machine."""
    rng = Random(f"driftcast fuzz {seed} {index}")
    run_seed = rng.randrange(1, 1_000_000)
    case = FuzzCase({}, {}, run_seed)
    for attempt in range(ATTEMPTS):
        case = _Draft(rng, share=rng.choice((0.0, 0.1, 0.3, 0.7)) / (1 + attempt)).case(run_seed)
        if _loads(case.tables):
            break
    return FuzzCase(spoil(case.tables, rng), case.files, run_seed) if rng.random() < SPOILED else case


def _loads(tables: Mapping[str, object]) -> bool:
    try:
        check_scenario(parse_settings(dict(tables), Scenario, "draft"), "draft")
    except UserError:
        return False
    return True


class _Draft:
    """One draw of everything. `share` is how many of the settings are not left at their defaults."""

    def __init__(self, rng: Random, share: float) -> None:
        self._rng = rng
        self._share = share
        extreme = rng.random() < 0.08
        duration_s = log_uniform(rng, 1, 3) if extreme else log_uniform(rng, 5, 100)
        self._nodes = 1 if rng.random() < 0.02 else rng.choice((2, 2, 3, 3, 4, 5, 6, 8, 10, 12))
        self._name = rng.choice(protocol_names())
        self._kind = find_protocol(self._name)
        self._roles = self._draw_roles()
        self._around = ScenarioBounds(duration_s, self._nodes, list(self._roles), extreme)
        self._values = Values(rng, self._around)

    def case(self, seed: int) -> FuzzCase:
        """All tables."""
        rng, around = self._rng, self._around
        tables: dict[str, object] = {"duration_s": around.duration_s, "nodes": self._nodes}
        places = Places(rng, around, self._values)
        tables |= places.tables(self._share)
        if self._roles:
            tables["roles"] = self._roles
        if rng.random() < 0.7:
            tables["discovery"] = self._discovery()
        runs_processors = issubclass(self._kind, RunsProcessors)
        answers = issubclass(self._kind, AnswersRequests | Advertises)
        workloads = Workloads(rng, around, list(self._roles))
        tables |= workloads.tables(runs_processors, answers)
        tables["protocol"] = self._protocol()
        if rng.random() < (0.3 if issubclass(self._kind, UsesRouter) else 0.05):
            name = rng.choice(router_names())
            tables["router"] = {"name": name, **self._machine(find_router(name))}
        if rng.random() < 0.4:
            tables["faults"] = [self._fault() for _ in range(rng.randint(1, 3))]
        files = dict(places.files)
        if rng.random() < 0.06:
            tables |= self._applications(files)
        tables |= self._rest()
        return FuzzCase(tables, files, seed)

    def _draw_roles(self) -> dict[str, object]:
        rng, nodes = self._rng, self._nodes
        roles: dict[str, object] = {}
        example = example_tables(self._name).get("roles", {})
        assert isinstance(example, Mapping)
        for role in example:
            roles[role] = rng.choice(
                ["all", "all", [0], sorted(rng.sample(range(nodes), rng.randint(1, nodes))), "50%"]
            )
        if rng.random() < 0.15:
            roles["cars"] = rng.choice(["all", "50%", rng.randint(0, nodes), [0], {"nodes": "50%", "apart": []}])
            roles["some"] = {"nodes": rng.choice(["all", "50%"]), "within": "cars"}
        return roles

    def _discovery(self) -> dict[str, object]:
        mode = self._rng.choice(("oracle", "oracle", "oracle", "oracle", "beacon", "beacon", "none"))
        return self._values.settings(BeaconMode, self._share) if mode == "beacon" else {"mode": mode}

    def _protocol(self) -> dict[str, object]:
        table: dict[str, object] = {"name": self._name}
        if self._kind.variants and self._rng.random() < 0.5:
            table["variant"] = self._rng.choice(sorted(self._kind.variants))
        table |= self._machine(self._kind)
        if "durable" in self._kind.settings_type.__struct_fields__ and self._rng.random() < 0.25:
            table["durable"] = True
        return table

    def _machine(self, kind: type[StateMachine]) -> dict[str, object]:
        special: dict[str, Drawn] = {"weights": lambda: self._rng.choice(_WEIGHTS)}
        # A memory of events that is too small for the network is taken as an order to deliver again what it forgot;
        # the error names it. Only the floods of `parts/relay.py` promise more.
        if "jitter_s" not in kind.settings_type.__struct_fields__:
            special["seen_s"] = lambda: min(3600.0, self._around.duration_s * self._rng.choice((2, 5)))
        special["max_met"] = special["max_seen"] = lambda: self._rng.choice((2000, 50_000))
        return self._values.settings(kind.settings_type, self._share, special)

    def _fault(self) -> dict[str, object]:
        """Of any kind, with what a fault needs to be one: nodes that there are, and one of `at_s` and `every_s`."""
        rng, duration_s = self._rng, self._around.duration_s
        kind = rng.choice(Fault.__args__)
        special: dict[str, Drawn] = {
            "nodes": lambda: rng.choice(["all", "50%", rng.randint(0, self._nodes), [rng.randrange(self._nodes)]]),
            "between": lambda: rng.sample(range(self._nodes), 2) if self._nodes > 1 else [0, 0],
            "at_s": lambda: log_uniform(rng, duration_s / 50, duration_s),
            "every_s": lambda: log_uniform(rng, duration_s / 20, duration_s),
            "for_s": lambda: log_uniform(rng, duration_s / 100, duration_s * 2),
            "from_s": lambda: rng.choice([0.0, duration_s / 2]),
            "drift": lambda: rng.choice([0.0, 1e-4, 0.01]),
            "probability": lambda: rng.choice([0.05, 0.1, 0.3, 1.0]),
        }
        table = self._values.settings(kind, 0.4, special)
        if kind.__struct_config__.tag in ("crash", "cut_off"):
            kept = rng.choice(("at_s", "every_s"))
            table = {key: value for key, value in table.items() if key not in ("at_s", "every_s")}
            table[kept] = special[kept]()
        return table

    def _rest(self) -> dict[str, object]:
        rng, tables = self._rng, dict[str, object]()
        for name, kind in (("energy", EnergySettings), ("service", ServiceSettings), ("computer", ComputerSettings)):
            if rng.random() < 0.05:
                tables[name] = self._values.settings(kind, 0.3)
        if "service" in tables and not self._around.extreme:
            # So short that a network is not choked by it, as a rule.
            tables["service"] = {"time_s": log_uniform(rng, 1e-4, 0.05), "queue": rng.choice((1, 10, 1000))}
        computer = tables.setdefault("computer", {})
        assert isinstance(computer, dict)
        computer["max_derived_events"] = rng.choice((1, 500, 1000))
        if rng.random() < 0.1:
            tables["measure"] = {
                "from_s": self._around.duration_s * rng.choice((0.0, 0.3)),
                "more": [{"name": "some_load", "counts": "load"}, {"name": "served", "counts": "pairs"}],
            }
        return tables

    def _applications(self, files: dict[str, str]) -> dict[str, object]:
        """A tool, repositories and nodes that enforce, and policies that are published."""
        rng, known = self._rng, applications()
        special: dict[str, Drawn] = {
            "roles": lambda: rng.choice([["cars"], ["broker"], []]),
            "attributes": lambda: {"battery": rng.choice([0.2, 0.9])},
            "repositories": lambda: 1,
        }
        entries = [
            {
                "name": name,
                "nodes": [place % self._nodes],
                "settings": self._values.settings(kind.settings_type, 0.2, special),
            }
            for place, (name, kind) in enumerate(known.items())
        ]
        command = {"application": "policy_tool", "nodes": "all", "at_s": self._around.duration_s * rng.random() / 2}
        verb = rng.choice(("publish", "publish", "list", "check", "withdraw", "no such verb"))
        if verb in ("publish", "check"):
            files["some.policy"] = POLICY
            return {"applications": entries, "command": [{**command, "verb": verb, "file": "some.policy"}]}
        return {"applications": entries, "command": [{**command, "verb": verb, "body": {"id": "slow"}}]}
