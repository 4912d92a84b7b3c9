"""Where nodes of a random scenario are, and who hears whom: mostly so near that events can arrive."""

from random import Random

from carrycast.sim.mobility import MobilityModel, movement_models
from carrycast.sim.radio import radio_named
from carrycast.sim.testing.fuzz.values import Drawn, ScenarioBounds, Values, log_uniform

AREA_M = 100.0
ON_ROADS = ("freeway", "manhattan")
# Their files are what other programs write; reading those has tests of its own. `csv` stands for them.
FROM_OTHERS = ("bonnmotion", "fleet", "ns2", "one", "sumo")


class Places:
    """Draws `mobility` or `contacts`, `radio` and `wires`. `files` are those that they name."""

    def __init__(self, rng: Random, around: ScenarioBounds, values: Values) -> None:
        self._rng = rng
        self._around = around
        self._values = values
        self.files: dict[str, str] = {}

    def tables(self, share: float) -> dict[str, object]:
        """All of that, and the area."""
        rng, way = self._rng, self._rng.random()
        tables: dict[str, object] = {"area_m": [AREA_M, AREA_M]}
        range_m = AREA_M * rng.choice((0.2, 0.4, 0.6, 0.8, 1.5, 1.5))
        if way < 0.8:
            table = self._mobility(rng.choice([name for name in movement_models() if name not in FROM_OTHERS]), share)
            tables["mobility"] = table
            if str(table["model"]) in ON_ROADS:
                range_m *= 20
                tables["area_m"] = [5000.0, 5000.0]
        elif way < 0.9:
            tables["contacts"] = "contacts.txt"
            self.files["contacts.txt"] = self._contacts()
        if way >= 0.9 or rng.random() < 0.1:
            tables["wires"] = [self._wire()]
        tables["radio"] = self._radio(range_m, share, csma=way < 0.8 and rng.random() < 0.15)
        return tables

    def _radio(self, range_m: float, share: float, csma: bool) -> dict[str, object]:
        special: dict[str, Drawn] = {
            "range_m": lambda: range_m,
            "delay_s": lambda: self._rng.choice([0.0, 0.001, 0.01, 0.2]),
            "rate_bps": lambda: log_uniform(self._rng, 2e4, 1e7),
            "data_rate_bps": lambda: log_uniform(self._rng, 1e5, 1e8),
            "basic_rate_bps": lambda: log_uniform(self._rng, 1e5, 1e7),
            "loss": lambda: self._rng.choice([0.0, 0.05, 0.3]),
        }
        name = "csma" if csma else "disk"
        return {"model": name, **self._values.settings(radio_named(name), share, special), "range_m": range_m}

    def _wire(self) -> dict[str, object]:
        rng, nodes = self._rng, self._around.nodes
        ends: dict[str, object] = {"tree": rng.choice((1, 2, 3))}
        if nodes > 1 and rng.random() < 0.5:
            ends = {
                "between": [
                    [node, rng.choice([other for other in range(nodes) if other != node])] for node in range(nodes)
                ]
            }
        if rng.random() < 0.3:
            ends |= {"delay_s": rng.choice((0.0, 0.01, 1.0)), "rate_bps": log_uniform(rng, 1e4, 1e9)}
        return ends

    def _mobility(self, name: str, share: float) -> dict[str, object]:
        special: dict[str, Drawn] = {
            "positions": lambda: [self._place() for _ in range(self._around.nodes)],
            "map": lambda: "city" if name == "manhattan" else "highway",
            "file": self._csv,
            "speed_min_mps": lambda: log_uniform(self._rng, 0.1, 2),
            "speed_max_mps": lambda: log_uniform(self._rng, 2, 40),
            "of": lambda: self._mobility("random_waypoint", share),
            "rest": lambda: self._mobility(self._rng.choice(("random_static", "random_waypoint")), share),
            "from_s": lambda: self._rng.uniform(0, 100),
            "columns": lambda: self._rng.randint(1, 4),
            "rows": lambda: self._rng.randint(1, 4),
            "groups": lambda: self._rng.randint(1, max(1, self._around.nodes // 2)),
            "travelers": lambda: self._rng.randint(0, self._around.nodes),
            "spacing_m": lambda: self._rng.uniform(1, AREA_M / self._around.nodes),
        }
        kind: type[MobilityModel] = movement_models()[name]
        table = {"model": name, **self._values.settings(kind, share, special)}
        if name == "mixed":
            table["positions"] = [self._place() for _ in range(self._rng.randint(1, max(1, self._around.nodes - 1)))]
        if name == "community":
            table = {
                **table,
                "columns": 3,
                "rows": 3,
                "groups": special["groups"](),
                "travelers": special["travelers"](),
            }
        return table

    def _place(self) -> list[float]:
        return [round(self._rng.uniform(0, AREA_M), 1), round(self._rng.uniform(0, AREA_M), 1)]

    def _csv(self) -> str:
        """A table of movement in which nodes come late, stand and move."""
        lines = ["time_s,node,x_m,y_m"]
        for node in range(self._around.nodes):
            times = sorted({0 if node == 0 else self._rng.choice((0, 0, 10)), *self._rng.sample(range(1, 60), 2)})
            lines += [f"{time},{node},{x:g},{y:g}" for time in times for x, y in [self._place()]]
        self.files["movement.csv"] = "\n".join(lines) + "\n"
        return "movement.csv"

    def _contacts(self) -> str:
        """Lines of CONN events: pairs that meet and part, in the order of time."""
        rng, nodes = self._rng, self._around.nodes
        changes: list[tuple[float, str]] = []
        for a in range(nodes):
            for b in range(a + 1, nodes):
                time_s = rng.uniform(0, self._around.duration_s / 3)
                up = rng.random() < 0.7
                while up and time_s < self._around.duration_s:
                    stay_s = log_uniform(rng, self._around.duration_s / 20, self._around.duration_s)
                    changes += [(time_s, f"CONN {a} {b} up"), (time_s + stay_s, f"CONN {a} {b} down")]
                    time_s += stay_s + rng.uniform(0.1, self._around.duration_s / 3)
        return "".join(f"{time_s:.3f} {text}\n" for time_s, text in sorted(changes)) or "0.0 CONN 0 1 up\n"
