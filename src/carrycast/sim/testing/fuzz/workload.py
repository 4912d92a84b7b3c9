"""Draws the workload of a random scenario. It has few topics, so that most events match a filter."""

from random import Random

from carrycast.sim.testing.fuzz.case import PROCESSORS
from carrycast.sim.testing.fuzz.values import ScenarioBounds, draw_log_uniform

TOPICS = 3
FILTERS = (
    "true",
    "topic = {topic}",
    "topic = {topic}",
    "topic = {topic} and level >= {level}",
    "topic = {topic} or level < {level}",
    "topic in (1, {topic})",
    "level between 2 and 8",
    "name like 'n%'",
    "name matches 'n/+/#'",
    "topic is not null and not flag",
    "part = 1 or joined > 0 or count > 0 or topic = {topic}",
)
STATELESS = (
    *("copy_attributes", "change_topic", "raise_level", "split_in_two", "extend_payload", "drop_event"),
    *("fail_sometimes", "return_number", "return_infinity", "return_huge_number"),
)
STATEFUL = ("count_events", "pass_every_second", "grow_state")


class WorkloadGenerator:
    """Draws `subscribe`, `publish`, `flow`, `advertise`, `request` and `processors`."""

    def __init__(self, rng: Random, around: ScenarioBounds, roles: list[str]) -> None:
        self._rng = rng
        self._around = around
        self._roles = roles

    def draw_tables(self, runs_processors: bool, answers: bool) -> dict[str, object]:
        """Draw these tables; those that the protocol ignores only rarely."""
        rng = self._rng
        tables: dict[str, object] = {}
        names: list[str] = []
        if rng.random() < (0.5 if runs_processors else 0.03):
            entries = [self._draw_processor(place) for place in range(rng.randint(1, 3))]
            names = [str(entry["id"]) for entry in entries]
            tables["processors"] = entries
        tables["subscribe"] = [self._draw_subscribe(names, place == 0) for place in range(rng.randint(1, 3))]
        tables["publish"] = [self._draw_publish(place == 0) for place in range(rng.randint(1, 3))]
        if rng.random() < (0.4 if answers else 0.03):
            tables["advertise"] = [self._draw_advertise() for _ in range(rng.randint(1, 2))]
            tables["request"] = [self._draw_request()]
        if rng.random() < 0.15 and self._around.nodes > 1:
            tables["flow"] = [self._draw_flow() for _ in range(rng.randint(1, 2))]
        return tables

    def _draw_flow(self) -> dict[str, object]:
        rng, duration_s = self._rng, self._around.duration_s
        entry: dict[str, object] = {
            "from": self._draw_nodes(),
            "to": self._draw_nodes() if rng.random() < 0.3 else "all",
            "rate_per_s": rng.choice((2, 5, 20)) / duration_s,
        }
        if rng.random() < 0.3:
            entry["size_bytes"] = rng.choice((0, 1, 500, 20_000))
        if rng.random() < 0.3:
            entry["spacing"] = "poisson"
        if rng.random() < 0.3:
            entry |= {"from_s": duration_s * 0.2, "to_s": duration_s * 0.7}
        if rng.random() < 0.2:
            entry["lease_s"] = rng.choice((1e-3, duration_s / 10, float("inf")))
        return entry

    def _draw_nodes(self) -> object:
        rng, nodes = self._rng, self._around.nodes
        if rng.random() < 0.6:
            return "all"
        some = [sorted(rng.sample(range(nodes), rng.randint(1, nodes))), "50%", rng.randint(1, nodes)]
        return rng.choice([*some, *self._roles])

    def _draw_filter(self) -> dict[str, object]:
        text = self._rng.choice(FILTERS)
        draw: dict[str, object] = {}
        if "{topic}" in text:
            draw["topic"] = {"integers": [1, TOPICS]}
        if "{level}" in text:
            draw["level"] = {"uniform": [0.0, 10.0]}
        return {"filter": text, "draw": draw}

    def _draw_subscribe(self, processors: list[str], sure: bool) -> dict[str, object]:
        """Draw a subscription. With `sure`, for the first one of a scenario, events match it."""
        rng, duration_s = self._rng, self._around.duration_s
        topics: dict[str, object] = {"filter": "topic = {topic}", "draw": {"topic": {"integers": [1, TOPICS]}}}
        entry = topics if sure else self._draw_filter()
        entry["nodes"] = "all" if sure else self._draw_nodes()
        if sure and rng.random() < 0.5:
            entry["each"] = TOPICS
        if rng.random() < 0.2:
            entry["at_s"] = duration_s * rng.random() / 2
        if rng.random() < 0.15:
            entry["until_s"] = duration_s * rng.uniform(0.6, 1.2)
        if rng.random() < 0.1:
            entry["attributes"] = {"rank": rng.choice([1, "major", True, {"integers": [0, 3]}])}
        if rng.random() < 0.1:
            entry["history"] = True
        if not sure and rng.random() < 0.1:
            entry |= {"births_per_s": 3 / duration_s, "lifetime_s": duration_s / 3}
        if processors and rng.random() < 0.4:
            entry["processor"] = rng.choice(processors)
            if rng.random() < 0.3:
                entry["state"] = rng.choice(("0", "5", "text"))
        return entry

    def _draw_publish(self, sure: bool) -> dict[str, object]:
        """Draw a publication. With `sure`, for the first one, it has several events at all nodes, for everybody."""
        rng, duration_s = self._rng, self._around.duration_s
        entry: dict[str, object] = {
            "nodes": "all" if sure else self._draw_nodes(),
            "attributes": self._draw_attributes(),
        }
        rhythm = rng.random()
        if sure and rhythm < 0.6:
            return {**entry, "count": rng.choice((5, 10, 20)), "to_s": duration_s * 0.7}
        if rhythm < 0.6:
            entry["count"] = rng.choice((1, 3, 5, 10, 20))
        elif rhythm < 0.8:
            entry["interval_s"] = duration_s / rng.choice((2, 5, 15))
        else:
            entry["every_s"] = duration_s / rng.choice((1, 2, 3))
        if rng.random() < 0.6:
            entry["to_s"] = duration_s * 0.7
        if rng.random() < 0.3:
            entry["from_s"] = duration_s * 0.2
        if rng.random() < 0.4:
            entry["payload_bytes"] = rng.choice((1, 50, 50, 500, 2000, 20_000))
        if rng.random() < 0.6:
            usual = draw_log_uniform(rng, duration_s / 50, duration_s * 2)
            entry["lease_s"] = rng.choice([usual, usual, float("inf"), rng.choice((5e-324, 1e-9, 1e-3, 1e9, 1e300))])
        if rng.random() < 0.1:
            entry["access"] = rng.choice(("rank = 1", "rank >= 1", "rank is not null", "true"))
        return entry

    def _draw_attributes(self) -> dict[str, object]:
        rng = self._rng
        found: dict[str, object] = {"topic": {"integers": [1, TOPICS]}}
        if rng.random() < 0.7:
            found["level"] = rng.choice([{"uniform": [0.0, 10.0]}, {"integers": [0, 10]}, 5, -0.0, 1e308, 2**63 - 1])
        if rng.random() < 0.4:
            found["name"] = rng.choice(["n/a/b", "", "näme", {"choice": ["n/1", "n/2/x", "other"]}])
        if rng.random() < 0.2:
            found["flag"] = rng.random() < 0.5
        return found

    def _draw_processor(self, place: int) -> dict[str, object]:
        rng = self._rng
        function = rng.choice([*STATELESS, *STATEFUL, "join_events"])
        entry: dict[str, object] = {
            "id": f"p{place}",
            "function": f"{PROCESSORS}:{function}",
            "nodes": self._draw_nodes(),
            "filter": rng.choice(("true", "topic = 1", "topic = 2", "topic <= 2", "level > 3")),
        }
        if function == "join_events":
            entry["inputs"] = rng.randint(2, 4)
        if rng.random() < 0.3:
            entry["cost_s"] = draw_log_uniform(rng, 1e-3, 1)
        return entry

    def _draw_advertise(self) -> dict[str, object]:
        entry = {**self._draw_filter(), "nodes": self._draw_nodes()}
        if self._rng.random() < 0.3:
            entry["stored"] = False
        if self._rng.random() < 0.2:
            entry["until_s"] = self._around.duration_s * self._rng.uniform(0.5, 1.2)
        return entry

    def _draw_request(self) -> dict[str, object]:
        rng, duration_s = self._rng, self._around.duration_s
        entry = {
            **self._draw_filter(),
            "nodes": self._draw_nodes(),
            "patience_s": draw_log_uniform(rng, duration_s / 20, duration_s),
        }
        when = {"at_s": duration_s * 0.6} if rng.random() < 0.5 else {"rate_per_s": 3 / duration_s}
        return {**entry, **when}
