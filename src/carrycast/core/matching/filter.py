"""A filter: a predicate over events, written as an SQL condition."""

from functools import lru_cache

from carrycast.core.matching.canonical import canonical_text, canonicalize
from carrycast.core.matching.errors import FilterError
from carrycast.core.matching.evaluate import Predicate, compile_predicate
from carrycast.core.matching.intervals import number_points, string_points
from carrycast.core.matching.lexer import check_text
from carrycast.core.matching.parser import parse
from carrycast.core.matching.relations import Box, boxes_cover, boxes_of, boxes_overlap
from carrycast.core.matching.terms import Node
from carrycast.core.matching.values import ANYTHING, satisfies
from carrycast.core.model import Attributes, Scalar

__all__ = ["Filter", "FilterError"]

# The size of the cache of parsed filters: a node receives the same few filters many times.
PARSED_FILTERS = 4096


class _Parsed:
    """The state that all filters of one text share. Boxes are computed on first use: most nodes only match."""

    __slots__ = ("_boxes", "_expanded", "node", "predicate", "text")

    def __init__(self, node: Node, text: str) -> None:
        self.node = node
        self.text = text
        self.predicate: Predicate = compile_predicate(node)
        self._boxes: tuple[Box, ...] | None = None
        self._expanded = False

    def boxes(self) -> tuple[Box, ...] | None:
        if not self._expanded:
            self._boxes = boxes_of(self.node)
            self._expanded = True
        return self._boxes


@lru_cache(maxsize=PARSED_FILTERS)
def _parse_filter(text: str) -> _Parsed:
    node = canonicalize(parse(text))
    normal = canonical_text(node)
    # A canonical text can be longer than the original. It is sent and parsed again, so it has the same limit.
    check_text(normal)
    return _Parsed(node, normal)


class Filter:
    """A predicate over the attributes of events, such as `Filter("speed > 30 and road = 'A1'")`.

    Immutable. Filters with the same canonical text are equal; the text of a filter parses to an equal filter. The empty
    text matches everything. Raises FilterError, with the position, for text that is not a filter.

    >>> import carrycast
    >>> fast = carrycast.Filter("speed > 30 and road = 'A1'")
    >>> fast.matches({"speed": 31, "road": "A1"})
    True
    >>> carrycast.Filter("speed > 10").covers(fast)
    True
    """

    __slots__ = ("_parsed", "_predicate")

    def __init__(self, text: str = "") -> None:
        if not isinstance(text, str):
            raise TypeError(f'a filter is written as text, such as "speed > 30", not as {text!r}')
        self._parsed = _parse_filter(text)
        self._predicate = self._parsed.predicate

    @property
    def text(self) -> str:
        """The canonical text."""
        return self._parsed.text

    @property
    def node(self) -> Node:
        """The canonical terms."""
        return self._parsed.node

    @property
    def boxes(self) -> tuple[Box, ...] | None:
        """The boxes whose union the filter is, or None if they are too many."""
        return self._parsed.boxes()

    def matches(self, attributes: Attributes) -> bool:
        """Whether the condition is TRUE for an event with these attributes."""
        return self._predicate(attributes)

    def covers(self, other: "Filter") -> bool:
        """True only if every event that matches the other filter matches this one. Complete for conjunctions."""
        return self.text == other.text or boxes_cover(self.boxes, other.boxes)

    def overlaps(self, other: "Filter") -> bool:
        """False only if no event can match both filters. Complete for conjunctions."""
        return boxes_overlap(self.boxes, other.boxes)

    def __str__(self) -> str:
        return self._parsed.text

    def __repr__(self) -> str:
        return f"Filter({self._parsed.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._parsed.text == other._parsed.text

    def __hash__(self) -> int:
        return hash(self._parsed.text)

    def __reduce__(self) -> tuple[type["Filter"], tuple[str]]:
        return Filter, (self._parsed.text,)


def pinned_values(filter: Filter, attribute: str) -> tuple[Scalar, ...] | None:
    """Return the values of an attribute with which an event can match the filter; None if they cannot be listed.

    `topic = 'a' and speed > 3` allows the topic 'a', `topic in ('a', 'b')` both, and `speed > 3` cannot be listed: an
    event with any topic, or without one, may match. A filter that no event matches has no values. Each value occurs
    once. Numbers are floats.
    """
    boxes = filter.boxes
    if boxes is None:
        return None
    # True equals 1 as a dictionary key, so types are part of the key.
    found: dict[tuple[type, Scalar], None] = {}
    for box in boxes:
        values = _list_points(box, attribute)
        if values is None:
            return None
        found |= {(type(value), value): None for value in values}
    return tuple(value for _, value in found)


def _list_points(box: Box, attribute: str) -> list[Scalar] | None:
    values = box.get(attribute, ANYTHING)
    numbers, strings = number_points(values.numbers), string_points(values.strings)
    if values.absent or numbers is None or strings is None:
        return None
    # Adding zero turns -0.0 into 0.0.
    found: list[Scalar] = [*values.booleans, *(float(number) + 0.0 for number in numbers)]
    return found + [text for text in strings if satisfies(text, values.patterns)]
