"""One value of a scenario replaced by something hostile. The scenario must be refused in one line, or run as usual."""

import copy
import math
from collections.abc import Iterator
from random import Random

HOSTILE: tuple[object, ...] = (
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


def spoil(tables: dict[str, object], rng: Random) -> dict[str, object]:
    """A copy in which one value anywhere is another, or one more attribute is hostile."""
    spoiled = copy.deepcopy(tables)
    places = list(_places(spoiled))
    holder, key = rng.choice(places)
    value = copy.deepcopy(rng.choice(HOSTILE))
    if isinstance(holder, dict):
        holder[str(key)] = value
    else:
        holder[int(key)] = value
    # More nodes or seconds than a test can wait for are no mistake.
    for name, most in (("nodes", 10_000), ("duration_s", 1e5)):
        given = spoiled.get(name)
        if isinstance(given, int | float) and given > most:
            spoiled[name] = tables[name]
    return spoiled


def _places(value: object) -> Iterator[tuple[dict[str, object] | list[object], str | int]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from _places(item)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield value, place
            yield from _places(item)
