"""A filter: a predicate over events, written as an SQL condition."""

from functools import lru_cache

from carrycast.core.matching.canonical import canonical, text_of
from carrycast.core.matching.errors import FilterError
from carrycast.core.matching.evaluate import Predicate, compiled
from carrycast.core.matching.lexer import check_text
from carrycast.core.matching.parser import parse
from carrycast.core.matching.relations import Box, boxes_cover, boxes_of, boxes_overlap
from carrycast.core.matching.terms import Node
from carrycast.core.model import Attributes

__all__ = ["Filter", "FilterError"]

# A node sees the same few subscriptions again and again; this many are kept parsed, whatever arrives.
PARSED_FILTERS = 4096


class _Parsed:
    """What all filters of one text share; the boxes are computed when first needed, since most nodes only match."""

    __slots__ = ("_boxes", "_expanded", "node", "predicate", "text")

    def __init__(self, node: Node, text: str) -> None:
        self.node = node
        self.text = text
        self.predicate: Predicate = compiled(node)
        self._boxes: tuple[Box, ...] | None = None
        self._expanded = False

    def boxes(self) -> tuple[Box, ...] | None:
        if not self._expanded:
            self._boxes = boxes_of(self.node)
            self._expanded = True
        return self._boxes


@lru_cache(maxsize=PARSED_FILTERS)
def _parsed(text: str) -> _Parsed:
    node = canonical(parse(text))
    canonical_text = text_of(node)
    # A canonical text can be longer than what was written; it travels and must parse again, so it has the same limit.
    check_text(canonical_text)
    return _Parsed(node, canonical_text)


class Filter:
    """A predicate over the attributes of events, such as `Filter("speed > 30 and road = 'A1'")`.

    Immutable. Filters with the same canonical text are equal; the text of a filter parses to an equal filter. The empty
    text matches everything. Raises FilterError, with the position, for text that is not a filter.
    """

    __slots__ = ("_parsed", "_predicate")

    def __init__(self, text: str = "") -> None:
        if not isinstance(text, str):
            raise TypeError(f'a filter is written as text, such as "speed > 30", not as {text!r}')
        self._parsed = _parsed(text)
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
