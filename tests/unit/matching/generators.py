"""Random filters and random events over a fixed, typed schema.

The filters are plain SQL that DuckDB and Spark read too (only `topic_condition` is ours alone), so the same texts serve
for comparing carrycast's answers with theirs. Every draw comes from the given generator.
"""

from random import Random

from carrycast.core.model import Scalar

# Attribute -> SQL type. Names are in lower case, and differ by more than case, since SQL folds it.
SCHEMA = {
    "road": "VARCHAR",
    "note": "VARCHAR",
    "lane": "BIGINT",
    "speed": "DOUBLE",
    "armed": "BOOLEAN",
}

STRINGS = ("", "a", "b", "ab", "aab", "A1", "it's", "50%", "a_b", "é", "a/b", "a b", "!")
INTEGERS = (-3, -1, 0, 1, 2, 3, 1000)
REALS = (-2.5, -1.0, 0.0, 0.25, 0.5, 1.0, 2.5, 1000.0)
NUMBER_TEXTS = (
    "-3",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "-2.5",
    "0.25",
    "0.5",
    "1.0",
    "2.50",
    "1e3",
    "25e-1",
    ".5",
    "- 1",
    "1000",
)
COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
MIRRORS = {"=": "=", "<>": "<>", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
TOPICS = ("a", "a/b", "a/b/c", "a/c", "b/a", "/a", "a/", "$a", "$a/b", "b")
TOPIC_FILTERS = ("#", "+", "a/#", "a/+", "+/b", "a/b/#", "+/+", "/+", "$a/#", "a/+/c", "b/#", "a/b")


def random_attributes(rng: Random) -> dict[str, Scalar]:
    """An event's attributes: each of the schema with the right type, or absent."""
    attributes: dict[str, Scalar] = {}
    for name, kind in SCHEMA.items():
        if rng.random() < 0.2:
            continue
        if kind == "VARCHAR":
            attributes[name] = rng.choice(STRINGS)
        elif kind == "BIGINT":
            attributes[name] = rng.choice(INTEGERS)
        elif kind == "DOUBLE":
            attributes[name] = rng.choice(REALS)
        else:
            attributes[name] = rng.random() < 0.5
    return attributes


def random_filter(rng: Random, depth: int = 3) -> str:
    """A condition over the schema, well-typed, so that any SQL engine agrees on its meaning."""
    if depth == 0 or rng.random() < 0.25:
        return random_condition(rng)
    shape = rng.random()
    if shape < 0.25:
        return f"{cased(rng, 'not')} ({random_filter(rng, depth - 1)})"
    word = cased(rng, "and" if shape < 0.65 else "or")
    operands = [f"({random_filter(rng, depth - 1)})" for _ in range(rng.randint(2, 3))]
    return f" {word} ".join(operands)


def random_conjunction(rng: Random, size: int = 3) -> str:
    """Some conditions that must all hold."""
    return " and ".join(random_condition(rng) for _ in range(rng.randint(1, size)))


def random_condition(rng: Random) -> str:
    """A test of one attribute."""
    name = rng.choice(tuple(SCHEMA))
    if rng.random() < 0.1:
        return f"{name} {cased(rng, 'is')} {inverse(rng)}{cased(rng, 'null')}"
    if SCHEMA[name] == "BOOLEAN":
        return _boolean_condition(rng, name)
    text = SCHEMA[name] == "VARCHAR"
    shape = rng.random()
    if text and shape < 0.25:
        return f"{name} {inverse(rng)}{cased(rng, 'like')} {random_pattern(rng)}"
    literals = [_string(rng) if text else rng.choice(NUMBER_TEXTS) for _ in range(4)]
    if shape < 0.45:
        return f"{name} {inverse(rng)}{cased(rng, 'between')} {literals[0]} {cased(rng, 'and')} {literals[1]}"
    if shape < 0.65:
        return f"{name} {inverse(rng)}{cased(rng, 'in')} ({', '.join(literals[: rng.randint(1, 4)])})"
    comparison = rng.choice(COMPARISONS)
    if rng.random() < 0.2:
        return f"{literals[0]} {MIRRORS[comparison]} {name}"
    return f"{name} {comparison} {literals[0]}"


def _boolean_condition(rng: Random, name: str) -> str:
    shape = rng.random()
    if shape < 0.3:
        return name
    if shape < 0.5:
        return f"{cased(rng, 'not')} {name}"
    return f"{name} {rng.choice(COMPARISONS)} {rng.choice(('true', 'FALSE'))}"


def random_pattern(rng: Random) -> str:
    """A pattern of `like`, sometimes with an escape clause."""
    parts = [rng.choice(("%", "_", "a", "b", "ab", "1", "%", "é")) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.3:
        parts.insert(rng.randint(0, len(parts)), rng.choice(("!%", "!_", "!!")))
        return f"'{''.join(parts)}' {cased(rng, 'escape')} '!'"
    return f"'{''.join(parts)}'"


def topic_condition(rng: Random, name: str = "topic") -> str:
    """A condition on a topic, by MQTT's wildcards or by plain comparison."""
    if rng.random() < 0.7:
        return f"{name} {inverse(rng)}matches '{rng.choice(TOPIC_FILTERS)}'"
    return f"{name} {rng.choice(('=', '<>'))} '{rng.choice(TOPICS)}'"


def inverse(rng: Random) -> str:
    """Now and then `not`, followed by a space."""
    return cased(rng, "not") + " " if rng.random() < 0.4 else ""


def cased(rng: Random, keyword: str) -> str:
    """The keyword in some case."""
    return rng.choice((keyword, keyword, keyword.upper(), keyword.title()))


def _string(rng: Random) -> str:
    return "'" + rng.choice(STRINGS).replace("'", "''") + "'"
