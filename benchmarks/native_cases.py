"""Random scenarios for the protocols that are also in C++: short leases, losses, queues, small limits, many
subscriptions. The random scenarios of `fuzz` draw from all protocols and faults, so few of them run these."""

from random import Random

from carrycast.core.streams import stream
from carrycast.sim.scenario import Scenario, parse_scenario


def draw_native_case(seed: int, index: int) -> Scenario:
    """A random scenario for flooding, gossip or epidemic."""
    rng = stream(seed, "native case", index)
    nodes, duration_s = rng.randint(2, 30), rng.choice([20.0, 60.0, 300.0])
    side_m = rng.choice([200, 500, 1000])
    table: dict[str, object] = {
        "name": f"native-{seed}-{index}",
        "duration_s": duration_s,
        "nodes": nodes,
        "area_m": [side_m, side_m],
        "mobility": rng.choice(
            [{"model": "random_waypoint", "speed_min_mps": 1, "speed_max_mps": 30}, {"model": "random_static"}]
        ),
        "radio": _draw_radio(rng),
        "discovery": {"mode": "oracle"},
        "protocol": _draw_protocol(rng),
        "subscribe": [_draw_subscription(rng, duration_s) for _ in range(rng.randint(1, 3))],
        "publish": [_draw_publication(rng, duration_s) for _ in range(rng.randint(1, 2))],
        "measure": {"from_s": rng.choice([0.0, duration_s / 4])},
    }
    return parse_scenario(table, str(table["name"]))


def _draw_radio(rng: Random) -> dict[str, object]:
    radio: dict[str, object] = {"model": "disk", "range_m": rng.choice([100, 250])}
    if rng.random() < 0.4:
        radio |= {"loss": rng.choice([0.05, 0.3, 0.8]), "retries": rng.choice([0, 1, 3])}
    if rng.random() < 0.4:
        radio |= {"rate_bps": rng.choice([2_000, 50_000, 1_000_000]), "queue": rng.choice([1, 5, 50])}
    if rng.random() < 0.3:
        radio["delay_s"] = rng.choice([0.0, 0.01, 2.0])
    return radio


def _draw_protocol(rng: Random) -> dict[str, object]:
    name = rng.choice(["flooding", "gossip", "epidemic", "epidemic"])
    if name == "epidemic":
        settings: dict[str, object] = {
            "max_lease_s": rng.choice([2.0, 20.0, 3600.0]),
            "seen_grace_s": rng.choice([0.0, 1.0, 60.0]),
            "ask_again_s": rng.choice([0.01, 0.5, 10.0]),
            "tell_again_s": rng.choice([0.1, 3.0, 60.0]),
            "asks": rng.choice([1, 2, 20]),
            "buffer": rng.choice([5, 10_000]),
        }
    else:
        jitter_s = rng.choice([0.0, 0.0, 0.05, 0.5])
        settings = {
            "jitter_s": jitter_s,
            "seen_s": rng.choice([2 * jitter_s + 0.001, 1.0, 60.0]),
            "max_hops": rng.choice([1, 3, 255]),
        }
        settings["seen_s"] = max(float(str(settings["seen_s"])), 2 * jitter_s)
        if name == "gossip":
            settings |= {"p": rng.choice([0.0, 0.5, 1.0]), "sure_hops": rng.choice([0, 1, 3])}
    return {"name": name, **{key: value for key, value in settings.items() if rng.random() < 0.7 or key == "seen_s"}}


def _draw_subscription(rng: Random, duration_s: float) -> dict[str, object]:
    entry: dict[str, object] = {"filter": rng.choice(["a >= 0", "a > 1", "a = 2", "b = 'x'"])}
    if rng.random() < 0.5:
        entry["nodes"] = rng.choice(["50%", "all", 1])
    if rng.random() < 0.3:
        entry |= {"at_s": duration_s / 4, "until_s": duration_s / 2}
    return entry


def _draw_publication(rng: Random, duration_s: float) -> dict[str, object]:
    entry: dict[str, object] = {
        "count": rng.choice([1, 10, 60]),
        "payload_bytes": rng.choice([0, 100, 1000]),
        "attributes": {"a": rng.choice([0, 2])},
    }
    if rng.random() < 0.5:
        entry["lease_s"] = rng.choice([0.5, 3.0, 20.0, 100.0])
    return entry
