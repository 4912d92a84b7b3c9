"""Draws random scenarios: small networks that mostly deliver events, with settings drawn from their declared types.

A case depends only on its seed and its number. Each draw is loaded once. If its settings contradict each other, it is
drawn again with fewer settings, so that most cases run. In a few cases one value is made invalid on purpose: such a
scenario must be rejected with an error of one line, or run as usual.
"""

import copy
import json
import math
from collections.abc import Iterator, Mapping
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
from carrycast.sim.mobility import MobilityModel, movement_models
from carrycast.sim.radio import RadioOverride, SignalRadio, radio_named, radio_names
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
from carrycast.sim.testing.fuzz.values import Draw, ScenarioBounds, ValueGenerator, draw_log_uniform
from carrycast.sim.testing.fuzz.workload import WorkloadGenerator

ATTEMPTS = 6
SPOILED = 0.06
"""The share of cases in which one value is made invalid on purpose."""
_WEIGHTS = ({"change_degree": 1.0}, {"colocation": 1.0}, {"change_degree": 0.25, "colocation": 0.75})

AREA_M = 100.0
ROAD_MODELS = ("freeway", "manhattan")
# Models that play files of other programs. Tests of their own cover them; `csv` stands for them here.
FILE_MODELS = ("bonnmotion", "fleet", "ns2", "one", "sumo")
HOSTILE_VALUES: tuple[object, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    -1,
    0,
    0.0,
    -0.0,
    2**63,
    2**64,
    10**30,
    1e300,
    5e-324,
    "",
    "\0",
    "a\0b",
    "../../nowhere",
    "/",
    "x" * 5000,
    "{topic}",
    "topic =",
    True,
    [],
    [[]],
    [1, 2],
    {},
    {"integers": [1, 2**70]},
    {"integers": [5, 1]},
    {"uniform": [0.0, math.inf]},
    {"choice": [math.inf, 2**64]},
    {"choice": []},
    {"choice": [[1]]},
)

POLICY = """policy slow
roles cars, broker
if { battery < 0.3 }
then { set discovery.period_s = 4; run led 'off' }
"""


def draw_case(seed: int, index: int) -> FuzzCase:
    """Draw the case with a number. It is the same on every machine."""
    rng = Random(f"driftcast fuzz {seed} {index}")
    run_seed = rng.randrange(1, 1_000_000)
    case = FuzzCase({}, {}, run_seed)
    for attempt in range(ATTEMPTS):
        case = _Draft(rng, share=rng.choice((0.0, 0.1, 0.3, 0.7)) / (1 + attempt)).draw_case(run_seed)
        if _is_valid(case.tables):
            break
    return FuzzCase(spoil_tables(case.tables, rng), case.files, run_seed) if rng.random() < SPOILED else case


def _is_valid(tables: Mapping[str, object]) -> bool:
    try:
        check_scenario(parse_settings(dict(tables), Scenario, "draft"), "draft")
    except UserError:
        return False
    return True


class _Draft:
    """Draws all tables of one scenario. `share` of the settings differ from their defaults."""

    def __init__(self, rng: Random, share: float) -> None:
        self._rng = rng
        self._share = share
        extreme = rng.random() < 0.08
        duration_s = draw_log_uniform(rng, 1, 3) if extreme else draw_log_uniform(rng, 5, 100)
        self._nodes = 1 if rng.random() < 0.02 else rng.choice((2, 2, 3, 3, 4, 5, 6, 8, 10, 12))
        self._name = rng.choice(protocol_names())
        self._kind = find_protocol(self._name)
        self._roles = self._draw_roles()
        self._around = ScenarioBounds(duration_s, self._nodes, list(self._roles), extreme)
        self._values = ValueGenerator(rng, self._around)

    def draw_case(self, seed: int) -> FuzzCase:
        """Draw all tables."""
        rng, around = self._rng, self._around
        tables: dict[str, object] = {"duration_s": around.duration_s, "nodes": self._nodes}
        network = _Network(rng, around, self._values)
        tables |= network.draw_tables(self._share)
        if self._roles:
            tables["roles"] = self._roles
        if rng.random() < 0.7:
            tables["discovery"] = self._draw_discovery()
        runs_processors = issubclass(self._kind, RunsProcessors)
        answers = issubclass(self._kind, AnswersRequests | Advertises)
        workloads = WorkloadGenerator(rng, around, list(self._roles))
        tables |= workloads.draw_tables(runs_processors, answers)
        tables["protocol"] = self._draw_protocol()
        if rng.random() < (0.3 if issubclass(self._kind, UsesRouter) else 0.05):
            name = rng.choice(router_names())
            tables["router"] = {"name": name, **self._draw_machine(find_router(name))}
        if rng.random() < 0.4:
            tables["faults"] = [self._draw_fault() for _ in range(rng.randint(1, 3))]
        files = dict(network.files)
        if rng.random() < 0.06:
            tables |= self._draw_applications(files)
        tables |= self._draw_rest()
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

    def _draw_discovery(self) -> dict[str, object]:
        mode = self._rng.choice(("oracle", "oracle", "oracle", "oracle", "beacon", "beacon", "none"))
        return self._values.draw_settings(BeaconMode, self._share) if mode == "beacon" else {"mode": mode}

    def _draw_protocol(self) -> dict[str, object]:
        table: dict[str, object] = {"name": self._name}
        if self._kind.variants and self._rng.random() < 0.5:
            table["variant"] = self._rng.choice(sorted(self._kind.variants))
        table |= self._draw_machine(self._kind)
        if "durable" in self._kind.settings_type.__struct_fields__ and self._rng.random() < 0.25:
            table["durable"] = True
        return table

    def _draw_machine(self, kind: type[StateMachine]) -> dict[str, object]:
        special: dict[str, Draw] = {"weights": lambda: self._rng.choice(_WEIGHTS)}
        # With too small a memory of seen events a protocol delivers duplicates, and the checker reports that. Only the
        # floods of `parts/relay.py` promise more, so other protocols get a sufficient memory.
        if "jitter_s" not in kind.settings_type.__struct_fields__:
            special["seen_s"] = lambda: min(3600.0, self._around.duration_s * self._rng.choice((2, 5)))
        special["max_met"] = special["max_seen"] = lambda: self._rng.choice((2000, 50_000))
        return self._values.draw_settings(kind.settings_type, self._share, special)

    def _draw_fault(self) -> dict[str, object]:
        """Draw a fault of any kind that is valid: with existing nodes, and one of `at_s` and `every_s`."""
        rng, duration_s = self._rng, self._around.duration_s
        kind = rng.choice(Fault.__args__)
        special: dict[str, Draw] = {
            "nodes": lambda: rng.choice(["all", "50%", rng.randint(0, self._nodes), [rng.randrange(self._nodes)]]),
            "between": lambda: rng.sample(range(self._nodes), 2) if self._nodes > 1 else [0, 0],
            "at_s": lambda: draw_log_uniform(rng, duration_s / 50, duration_s),
            "every_s": lambda: draw_log_uniform(rng, duration_s / 20, duration_s),
            "for_s": lambda: draw_log_uniform(rng, duration_s / 100, duration_s * 2),
            "from_s": lambda: rng.choice([0.0, duration_s / 2]),
            "drift": lambda: rng.choice([0.0, 1e-4, 0.01]),
            "probability": lambda: rng.choice([0.05, 0.1, 0.3, 1.0]),
        }
        table = self._values.draw_settings(kind, 0.4, special)
        if kind.__struct_config__.tag in ("crash", "cut_off"):
            kept = rng.choice(("at_s", "every_s"))
            table = {key: value for key, value in table.items() if key not in ("at_s", "every_s")}
            table[kept] = special[kept]()
        return table

    def _draw_rest(self) -> dict[str, object]:
        rng, tables = self._rng, dict[str, object]()
        for name, kind in (("energy", EnergySettings), ("service", ServiceSettings), ("computer", ComputerSettings)):
            if rng.random() < 0.05:
                tables[name] = self._values.draw_settings(kind, 0.3)
        if "service" in tables and not self._around.extreme:
            # Usually short enough that the network is not overloaded.
            tables["service"] = {"time_s": draw_log_uniform(rng, 1e-4, 0.05), "queue": rng.choice((1, 10, 1000))}
        computer = tables.setdefault("computer", {})
        assert isinstance(computer, dict)
        computer["max_derived_events"] = rng.choice((1, 500, 1000))
        if rng.random() < 0.1:
            tables["measure"] = {
                "from_s": self._around.duration_s * rng.choice((0.0, 0.3)),
                "more": [{"name": "some_load", "counts": "load"}, {"name": "served", "counts": "pairs"}],
            }
        return tables

    def _draw_applications(self, files: dict[str, str]) -> dict[str, object]:
        """Draw the policy applications (tool, repository, enforcement) and a command to the tool."""
        rng, known = self._rng, applications()
        special: dict[str, Draw] = {
            "roles": lambda: rng.choice([["cars"], ["broker"], []]),
            "attributes": lambda: {"battery": rng.choice([0.2, 0.9])},
            "repositories": lambda: 1,
        }
        entries = [
            {
                "name": name,
                "nodes": [place % self._nodes],
                "settings": self._values.draw_settings(kind.settings_type, 0.2, special),
            }
            for place, (name, kind) in enumerate(known.items())
        ]
        command = {"application": "policy_tool", "nodes": "all", "at_s": self._around.duration_s * rng.random() / 2}
        verb = rng.choice(("publish", "publish", "list", "check", "withdraw", "no such verb"))
        if verb in ("publish", "check"):
            files["some.policy"] = POLICY
            return {"applications": entries, "command": [{**command, "verb": verb, "file": "some.policy"}]}
        return {"applications": entries, "command": [{**command, "verb": verb, "body": {"id": "slow"}}]}


class _Network:
    """Draws the tables `mobility` or `contacts`, `radio` and `wires`, mostly so that nodes are near enough to meet.

    `files` holds the files that these tables name.
    """

    def __init__(self, rng: Random, around: ScenarioBounds, values: ValueGenerator) -> None:
        self._rng = rng
        self._around = around
        self._values = values
        self.files: dict[str, str] = {}

    def draw_tables(self, share: float) -> dict[str, object]:
        """Draw these tables and the area. `share` of the settings differ from their defaults."""
        rng, way = self._rng, self._rng.random()
        tables: dict[str, object] = {"area_m": [AREA_M, AREA_M]}
        range_m = AREA_M * rng.choice((0.2, 0.4, 0.6, 0.8, 1.5, 1.5))
        if way < 0.8:
            table = self._draw_mobility(
                rng.choice([name for name in movement_models() if name not in FILE_MODELS]), share
            )
            tables["mobility"] = table
            if str(table["model"]) in ROAD_MODELS:
                range_m *= 20
                tables["area_m"] = [5000.0, 5000.0]
        elif way < 0.9:
            tables["contacts"] = "contacts.txt"
            self.files["contacts.txt"] = self._write_contacts()
        if way >= 0.9 or rng.random() < 0.1:
            tables["wires"] = [self._draw_wire()]
        tables["radio"] = self._draw_radio(range_m, share, placed=way < 0.8)
        return tables

    def _draw_radio(self, range_m: float, share: float, placed: bool) -> dict[str, object]:
        """Draw a radio; `placed` says whether nodes have positions."""
        chance = self._rng.random()
        if placed and chance < 0.2:
            return self._draw_signal_radio(share)
        name = "csma" if placed and chance < 0.35 else "serial" if chance > 0.95 else "disk"
        special: dict[str, Draw] = {
            "range_m": lambda: range_m,
            "delay_s": lambda: self._rng.choice([0.0, 0.001, 0.01, 0.2]),
            "rate_bps": lambda: draw_log_uniform(self._rng, 2e4, 1e7),
            "data_rate_bps": lambda: draw_log_uniform(self._rng, 1e5, 1e8),
            "basic_rate_bps": lambda: draw_log_uniform(self._rng, 1e5, 1e7),
            "loss": lambda: self._rng.choice([0.0, 0.05, 0.3]),
        }
        return {"model": name, **self._values.draw_settings(radio_named(name), share, special), "range_m": range_m}

    def _draw_signal_radio(self, share: float) -> dict[str, object]:
        """Draw a radio that computes powers, with its own range, perhaps with buildings and nodes that differ."""
        rng = self._rng
        name = rng.choice([one for one in radio_names() if issubclass(radio_named(one), SignalRadio)])
        kind = radio_named(name)
        special: dict[str, Draw] = {
            "range_m": lambda: rng.choice((0.0, AREA_M)),
            "preset": lambda: "802.11p",
            "data_rate_bps": lambda: rng.choice((3e6, 6e6, 27e6)),
            "basic_rate_bps": lambda: rng.choice((3e6, 6e6)),
            "tx_power_dbm": lambda: rng.uniform(-10, 40),
            "sensitivity_dbm": lambda: rng.uniform(-140, -60),
            "path_exponent": lambda: rng.uniform(1.5, 5),
            "nakagami": lambda: [[0.0, rng.uniform(0.5, 5)], [rng.uniform(1, 500), 1.0]],
            "nodes": lambda: [rng.randrange(self._around.nodes)],
            "obstacles": self._write_buildings,
            "obstacle_units": lambda: "meters",
            "duty_cycle": lambda: rng.choice((0.001, 0.01, 0.1, 1.0)),
            "min_exponent": lambda: rng.randint(0, 4),
            "max_exponent": lambda: rng.randint(4, 8),
        }
        table = {"model": name, **self._values.draw_settings(kind, share, special)}
        if "obstacles" in table:
            table["obstacle_units"] = "meters"
        if rng.random() < share:
            table["override"] = [self._values.draw_settings(RadioOverride, 0.5, special)]
        return table

    def _write_buildings(self) -> str:
        """Write a GeoJSON file with some square buildings, in meters; return its name."""
        polygons = []
        for _ in range(self._rng.randint(1, 12)):
            (x, y), side_m = self._draw_place(), self._rng.uniform(1, 30)
            polygons.append([[[x, y], [x + side_m, y], [x + side_m, y + side_m], [x, y + side_m], [x, y]]])
        self.files["buildings.geojson"] = json.dumps({"type": "MultiPolygon", "coordinates": polygons})
        return "buildings.geojson"

    def _draw_wire(self) -> dict[str, object]:
        rng, nodes = self._rng, self._around.nodes
        ends: dict[str, object] = {"tree": rng.choice((1, 2, 3))}
        if nodes > 1 and rng.random() < 0.5:
            ends = {
                "between": [
                    [node, rng.choice([other for other in range(nodes) if other != node])] for node in range(nodes)
                ]
            }
        if rng.random() < 0.3:
            ends |= {"delay_s": rng.choice((0.0, 0.01, 1.0)), "rate_bps": draw_log_uniform(rng, 1e4, 1e9)}
        return ends

    def _draw_mobility(self, name: str, share: float) -> dict[str, object]:
        special: dict[str, Draw] = {
            "positions": lambda: [self._draw_place() for _ in range(self._around.nodes)],
            "map": lambda: "city" if name == "manhattan" else "highway",
            "file": self._write_csv,
            "speed_min_mps": lambda: draw_log_uniform(self._rng, 0.1, 2),
            "speed_max_mps": lambda: draw_log_uniform(self._rng, 2, 40),
            "of": lambda: self._draw_mobility("random_waypoint", share),
            "rest": lambda: self._draw_mobility(self._rng.choice(("random_static", "random_waypoint")), share),
            "from_s": lambda: self._rng.uniform(0, 100),
            "columns": lambda: self._rng.randint(1, 4),
            "rows": lambda: self._rng.randint(1, 4),
            "groups": lambda: self._rng.randint(1, max(1, self._around.nodes // 2)),
            "travelers": lambda: self._rng.randint(0, self._around.nodes),
            "spacing_m": lambda: self._rng.uniform(1, AREA_M / self._around.nodes),
        }
        kind: type[MobilityModel] = movement_models()[name]
        table = {"model": name, **self._values.draw_settings(kind, share, special)}
        if name == "mixed":
            table["positions"] = [
                self._draw_place() for _ in range(self._rng.randint(1, max(1, self._around.nodes - 1)))
            ]
        if name == "community":
            table = {
                **table,
                "columns": 3,
                "rows": 3,
                "groups": special["groups"](),
                "travelers": special["travelers"](),
            }
        return table

    def _draw_place(self) -> list[float]:
        return [round(self._rng.uniform(0, AREA_M), 1), round(self._rng.uniform(0, AREA_M), 1)]

    def _write_csv(self) -> str:
        """Write a CSV file of movement in which nodes come late, stand and move; return its name."""
        lines = ["time_s,node,x_m,y_m"]
        for node in range(self._around.nodes):
            times = sorted({0 if node == 0 else self._rng.choice((0, 0, 10)), *self._rng.sample(range(1, 60), 2)})
            lines += [f"{time},{node},{x:g},{y:g}" for time in times for x, y in [self._draw_place()]]
        self.files["movement.csv"] = "\n".join(lines) + "\n"
        return "movement.csv"

    def _write_contacts(self) -> str:
        """Return CONN events of pairs that meet and part, in the order of time."""
        rng, nodes = self._rng, self._around.nodes
        changes: list[tuple[float, str]] = []
        for a in range(nodes):
            for b in range(a + 1, nodes):
                time_s = rng.uniform(0, self._around.duration_s / 3)
                up = rng.random() < 0.7
                while up and time_s < self._around.duration_s:
                    stay_s = draw_log_uniform(rng, self._around.duration_s / 20, self._around.duration_s)
                    changes += [(time_s, f"CONN {a} {b} up"), (time_s + stay_s, f"CONN {a} {b} down")]
                    time_s += stay_s + rng.uniform(0.1, self._around.duration_s / 3)
        return "".join(f"{time_s:.3f} {text}\n" for time_s, text in sorted(changes)) or "0.0 CONN 0 1 up\n"


def spoil_tables(tables: dict[str, object], rng: Random) -> dict[str, object]:
    """Return a copy in which one value, anywhere, is replaced by a hostile one."""
    spoiled = copy.deepcopy(tables)
    places = list(_find_places(spoiled))
    holder, key = rng.choice(places)
    value = copy.deepcopy(rng.choice(HOSTILE_VALUES))
    if isinstance(holder, dict):
        holder[str(key)] = value
    else:
        holder[int(key)] = value
    # Very many nodes or seconds are valid, but a test cannot wait for them.
    for name, most in (("nodes", 10_000), ("duration_s", 1e5)):
        given = spoiled.get(name)
        if isinstance(given, int | float) and given > most:
            spoiled[name] = tables[name]
    return spoiled


def _find_places(value: object) -> Iterator[tuple[dict[str, object] | list[object], str | int]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from _find_places(item)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield value, place
            yield from _find_places(item)
