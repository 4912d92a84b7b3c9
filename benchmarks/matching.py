"""W6: tables of a broker: publications matched against very many filters, and covering as subscriptions come and go."""

import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from random import Random

from carrycast.core.matching import Filter, FilterIndex
from carrycast.core.model import Scalar
from carrycast.protocols.tree.filter_table import FilterTable

SEED = 1
Event = dict[str, Scalar]
MATCHING = 10
PER_TOPIC = 100
SPAN = 1000
NEIGHBORS = 4


def equality(number: int, filters: int) -> str:
    """Ten attributes, each with a tenth of the values: an event that has all ten meets exactly ten filters."""
    return f"a{number % MATCHING} = 'v{number // MATCHING}'"


def equality_event(rng: Random, filters: int) -> Event:
    """One value of each of the ten."""
    return {f"a{place}": f"v{rng.randrange(filters // MATCHING)}" for place in range(MATCHING)}


def ranged(number: int, filters: int) -> str:
    """A hundred ranges for each topic, of which ten contain any value."""
    low = (number % PER_TOPIC) * SPAN / PER_TOPIC
    return f"topic = 't{number // PER_TOPIC}' and value between {low} and {low + MATCHING * SPAN / PER_TOPIC - 0.5}"


def ranged_event(rng: Random, filters: int) -> Event:
    """A topic, and a value that ten ranges contain."""
    return {"topic": f"t{rng.randrange(filters // PER_TOPIC)}", "value": rng.uniform(100.0, 989.0)}


def few_topics(number: int, filters: int) -> str:
    """The same with a hundred topics, however many filters there are: ranges are narrower the more there are."""
    topics = 100
    width = SPAN / (filters // topics)
    low = (number // topics) * width
    return f"topic = 't{number % topics}' and value between {low} and {low + (MATCHING - 0.5) * width}"


def few_topics_event(rng: Random, filters: int) -> Event:
    """A topic, and a value that ten ranges contain."""
    return {"topic": f"t{rng.randrange(100)}", "value": rng.uniform(0.2 * SPAN, 0.9 * SPAN)}


SHAPES: dict[str, tuple[Callable[[int, int], str], Callable[[Random, int], Event]]] = {
    "equality": (equality, equality_event),
    "topic and range": (ranged, ranged_event),
    "topic and range, 100 topics": (few_topics, few_topics_event),
}


def match(shape: str, filters: int, events: int = 4000, memory: bool = False) -> dict[str, float]:
    """Publications per CPU second against so many distinct filters, of which ten match, under keys of 3 neighbors."""
    text, draw = SHAPES[shape]
    if memory:
        gc.collect()
        tracemalloc.start()
    index: FilterIndex[tuple[int, int]] = FilterIndex()
    begin_s = time.process_time()
    for number in range(filters):
        index.add((number % 3, number), Filter(text(number, filters)))
    add_s = time.process_time() - begin_s
    figures = {"filters": filters, "add_us": 1e6 * add_s / filters}
    if memory:
        figures["bytes_per_filter"] = tracemalloc.get_traced_memory()[0] / filters
        tracemalloc.stop()
        return figures
    rng = Random(SEED)
    published = [draw(rng, filters) for _ in range(events)]
    found = 0
    gc.collect()
    gc.freeze()
    begin_s = time.process_time()
    for event in published:
        keys = index.match(event)
        found += len(keys)
        dict.fromkeys([neighbor for neighbor, _ in keys])
    figures["publications_per_cpu_s"] = events / (time.process_time() - begin_s)
    gc.unfreeze()
    figures["matched"] = found / events
    return figures


def subscription(rng: Random) -> str:
    """Topics and ranges of all widths: most are covered by others, some cover many."""
    topic, low = rng.randrange(2000), rng.randrange(SPAN)
    width = int(2 ** rng.uniform(0, 9))
    shape = rng.random()
    if shape < 0.02:
        return f"topic = 't{topic}'"
    if shape < 0.5:
        return f"topic = 't{topic}' and value between {low} and {low + width}"
    return f"topic = 't{topic}' and value between {low} and {low + width} and kind = 'k{rng.randrange(5)}'"


def covering(subscriptions: int = 100_000, changes: int = 10_000) -> dict[str, float]:
    """CPU for each subscription that comes to, or leaves, a broker: four neighbors, which it tells the fewest filters.

    Of each it hears a fourth, and it matches events with all of them: what is measured is all that a broker does.
    """
    rng = Random(SEED)
    table = FilterTable(NEIGHBORS, distances=False)
    for neighbor in range(NEIGHBORS):
        table.add_neighbor(neighbor)
    held: list[tuple[int, str]] = []
    begin_s = time.process_time()
    while len(held) < subscriptions:
        neighbor, added = len(held) % NEIGHBORS, Filter(subscription(rng))
        if added.text not in table.get_received(neighbor):
            held.append((neighbor, added.text))
            table.add(neighbor, added, 1)
    fill_s = time.process_time() - begin_s
    costs_s: list[float] = []
    for _ in range(changes // 2):
        place = rng.randrange(len(held))
        held[place], held[-1] = held[-1], held[place]
        (neighbor, gone), new = held.pop(), subscription(rng)
        begin_s = time.process_time()
        table.remove(neighbor, gone)
        middle_s = time.process_time()
        added = Filter(new)
        table.add(neighbor, added, 1)
        costs_s += [middle_s - begin_s, time.process_time() - middle_s]
        held.append((neighbor, added.text))
    costs_s.sort()
    return {
        "subscriptions": subscriptions,
        "told": sum(len(table.get_forwarded(neighbor)) for neighbor in range(NEIGHBORS)) / NEIGHBORS,
        "fill_ms": 1e3 * fill_s / len(held),
        "mean_ms": 1e3 * sum(costs_s) / len(costs_s),
        "p99_ms": 1e3 * costs_s[int(0.99 * len(costs_s))],
        "worst_ms": 1e3 * costs_s[-1],
    }


def main() -> None:
    """All of it; a million filters only if asked for."""
    sizes = (10_000, 100_000, 1_000_000) if "--all" in sys.argv else (10_000, 100_000)
    found: dict[str, object] = {f"{shape}, {size}": match(shape, size) for shape in SHAPES for size in sizes}
    found["memory"] = {shape: match(shape, 50_000, memory=True) for shape in SHAPES}
    found["covering"] = covering()
    json.dump(found, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
