"""The terms of a filter: literals, predicates over one attribute, and their combinations.

All are frozen and hashable. Each predicate concerns exactly one attribute, which is what makes `covers` and `overlaps`
decidable attribute by attribute.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

from carrycast.core.matching.patterns import LikePattern
from carrycast.core.matching.topics import TopicFilter
from carrycast.core.model import Scalar


class ValueKind(IntEnum):
    """The three kinds of values. Values of different kinds do not compare: the result is unknown."""

    BOOLEAN = 0
    NUMBER = 1
    STRING = 2


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the filter. The kind stands beside the value because in Python True == 1."""

    kind: ValueKind
    value: Scalar


class Operator(Enum):
    """The comparison operators, by their canonical spelling."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


NEGATED = {
    Operator.EQ: Operator.NE,
    Operator.NE: Operator.EQ,
    Operator.LT: Operator.GE,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
    Operator.LE: Operator.GT,
}

MIRRORED = {
    Operator.EQ: Operator.EQ,
    Operator.NE: Operator.NE,
    Operator.LT: Operator.GT,
    Operator.GE: Operator.LE,
    Operator.GT: Operator.LT,
    Operator.LE: Operator.GE,
}


@dataclass(frozen=True, slots=True)
class Constant:
    """`true` or `false` as a condition."""

    value: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """`attribute operator literal`."""

    attribute: str
    operator: Operator
    literal: Literal


@dataclass(frozen=True, slots=True)
class Between:
    """`attribute [not] between low and high`, both ends included."""

    attribute: str
    low: Literal
    high: Literal
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """`attribute [not] in (literal, ...)`."""

    attribute: str
    literals: tuple[Literal, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """`attribute [not] like 'pattern' [escape 'c']`."""

    attribute: str
    pattern: LikePattern
    negated: bool


@dataclass(frozen=True, slots=True)
class Matches:
    """`attribute [not] matches 'topic/filter/#'`."""

    attribute: str
    topics: TopicFilter
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """`attribute is [not] null`: the attribute is absent (or present)."""

    attribute: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """A negation as written; normalizing pushes it into the predicates."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class And:
    """True if all operands are."""

    operands: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any operand is."""

    operands: tuple["Node", ...]


Node = Constant | Compare | Between | In | Like | Matches | IsNull | Not | And | Or
