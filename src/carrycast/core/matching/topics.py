"""Topic filters of MQTT: levels between slashes, `+` for one level, `#` for all following levels.

The rules are those of MQTT 3.1.1 and 5.0, section 4.7: `#` stands only at the end and also matches its parent level; a
wildcard at the first level does not match topics that begin with `$`.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A valid topic filter, as its levels."""

    levels: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join(self.levels)

    def literal(self) -> str | None:
        """Return the only topic that this filter matches, or None if it has a wildcard."""
        return None if "+" in self.levels or "#" in self.levels else "/".join(self.levels)

    def expand_levels(self) -> tuple[str, ...]:
        """Return the levels, with a lone `#` as the equivalent `+/#`: then `#` always means 'zero or more levels'."""
        return ("+", "#") if self.levels == ("#",) else self.levels


def parse_topic_filter(text: str) -> TopicFilter:
    """Parse a topic filter; raises a ValueError that states what was expected."""
    if not text:
        raise ValueError("a topic filter of at least one character")
    if "\0" in text:
        raise ValueError("a topic filter without the null character")
    levels = tuple(text.split("/"))
    for number, level in enumerate(levels):
        if "#" in level and (level != "#" or number != len(levels) - 1):
            raise ValueError("a topic filter with '#' only as its whole last level")
        if "+" in level and level != "+":
            raise ValueError("a topic filter with '+' only as a whole level")
    return TopicFilter(("#",) if levels == ("+", "#") else levels)


def make_topic_matcher(topics: TopicFilter) -> Callable[[str], bool]:
    """Return a function that tests whether a topic matches the filter."""
    levels = topics.levels
    open_ended = levels[-1] == "#"
    fixed = levels[:-1] if open_ended else levels
    if open_ended and not fixed:
        return lambda topic: not topic.startswith("$")
    if "+" not in fixed:
        parent = "/".join(fixed)
        inside = parent + "/"
        if open_ended:
            return lambda topic: topic.startswith(inside) or topic == parent
        return lambda topic: topic == parent
    wild_first = fixed[0] == "+"
    count = len(fixed)
    tested = tuple((number, level) for number, level in enumerate(fixed) if level != "+")

    def matches(topic: str) -> bool:
        parts = topic.split("/")
        if len(parts) != count and (not open_ended or len(parts) < count):
            return False
        if wild_first and topic.startswith("$"):
            return False
        return all(parts[number] == level for number, level in tested)

    return matches


def topics_cover(wide: TopicFilter, narrow: TopicFilter) -> bool:
    """Whether every topic that `narrow` matches is matched by `wide`. Exact."""
    wide_levels, narrow_levels = wide.expand_levels(), narrow.expand_levels()
    for number, level in enumerate(wide_levels):
        if level == "#":
            return True
        if number == len(narrow_levels) or narrow_levels[number] == "#":
            return False
        other = narrow_levels[number]
        if level == "+":
            if number == 0 and other.startswith("$"):
                return False
        elif level != other:
            return False
    return len(wide_levels) == len(narrow_levels)


def topics_overlap(one: TopicFilter, two: TopicFilter) -> bool:
    """Whether some topic matches both filters. Exact."""
    ones, twos = one.expand_levels(), two.expand_levels()
    for number, (level, other) in enumerate(zip(ones, twos, strict=False)):
        if "#" in {level, other}:
            return True
        if level == other:
            continue
        if "+" not in {level, other}:
            return False
        if number == 0 and (level.startswith("$") or other.startswith("$")):
            return False
    shorter, longer = sorted((ones, twos), key=len)
    return len(shorter) == len(longer) or longer[len(shorter) :] == ("#",)
