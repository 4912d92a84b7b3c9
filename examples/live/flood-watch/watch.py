"""Flood watch on three live nodes, while links come and go.

`python watch.py` watches a box of 20 by 50 cells, `python watch.py '{}'` all of the map.
"""

import asyncio
import csv
import sys
from pathlib import Path

from carrycast.analysis.experiments.overlay.flood import rainfall
from carrycast.core.model import Event, SubscriptionId
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node.config import load_config

HERE = Path(__file__).parent
BOX = sys.argv[1] if len(sys.argv) > 1 else '{"west": 40, "east": 90, "south": 40, "north": 60}'
PHASES = (("A-B-C", "AB BC"), ("A-B-C-A", "AB BC AC"), ("A-C-B", "BC AC"), ("B-A-C", "AB AC"))
SHOWERS, EVERY_S, PATIENCE_S = 20, 0.15, 60.0
"""Of each topology, the time from one to the next, and how long the last map may take."""


async def watch() -> None:
    """Rain at A, a map at C; the four topologies one after the other."""
    configs = {name: load_config(HERE / f"laptop-{name.lower()}.toml") for name in "ABC"}
    names = {config.node: name for name, config in configs.items()}
    with (HERE / "rain.csv").open() as file:
        showers = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    maps: list[tuple[int, str, int]] = []

    def receive(subscription: SubscriptionId, event: Event, hops: int) -> None:
        maps.append((int(event.attributes["step"]), names[event.id.source], len(event.payload)))

    async with LoopbackNetwork(configs.values()) as network:
        node = {name: network.nodes[config.node] for name, config in configs.items()}

        def arrange(links: str) -> None:
            for a, b in ("AB", "BC", "AC"):
                change = network.link if a + b in links.split() else network.cut
                change(configs[a].node, configs[b].node)

        async def rain(count: int) -> int:
            for _ in range(count):
                step = published[0] = published[0] + 1
                shower = showers[(step - 1) % len(showers)]
                x, y, radius, rain_mm = (shower[name] for name in ("x", "y", "radius", "rain_mm"))
                # As 32-bit numbers: what a live node publishes must fit a datagram.
                grid = rainfall(x, y, radius, rain_mm).astype("float32")
                said = {"topic": "rain", "step": step, "x": x, "y": y, "radius": radius, "rain_mm": rain_mm}
                node["A"].publish(said, payload=grid.tobytes())
                await asyncio.sleep(EVERY_S)
            return published[0]

        published = [0]
        arrange(PHASES[0][1])
        await network.wait_until_discovered()
        node["C"].subscribe("topic = 'rain'", receive, processor="flood", state=BOX.encode())
        # Brokers find each other, and C its home.
        await asyncio.sleep(3.0)
        for name, links in PHASES:
            arrange(links)
            before = len(maps)
            sent = await rain(SHOWERS)
            await until(lambda sent=sent: len(maps) >= sent, PATIENCE_S)
            print(
                f"{name}: {len(maps) - before} maps of {maps[-1][2]} bytes, the last made at {maps[-1][1]}", flush=True
            )
    steps = [step for step, _, _ in maps]
    whole = "every map once, in order" if steps == list(range(1, published[0] + 1)) else f"maps are missing: {steps}"
    print(f"{published[0]} showers, {len(maps)} maps: {whole}")


if __name__ == "__main__":
    asyncio.run(watch())
