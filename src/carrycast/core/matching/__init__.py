"""The filter language: parse, match, cover, overlap, and an index that matches many filters at once."""

from carrycast.core.matching.covering import CoverChange, CoverForest, CoverIndex
from carrycast.core.matching.eligibility import admits, joint_policy, serves
from carrycast.core.matching.errors import FilterError, quote_token
from carrycast.core.matching.filter import Filter, pinned_values
from carrycast.core.matching.index import FilterIndex
from carrycast.core.matching.satisfiability import Satisfiability, check_satisfiability, find_example
from carrycast.core.matching.shared import MATCHER, relation
from carrycast.core.matching.terms import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Matches,
    Node,
    Not,
    Operator,
    Or,
    ValueKind,
)
from carrycast.core.matching.topics import TopicFilter, parse_topic_filter, topics_cover

__all__ = [
    "And",
    "Between",
    "Compare",
    "Constant",
    "CoverChange",
    "CoverForest",
    "CoverIndex",
    "Filter",
    "FilterError",
    "FilterIndex",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "MATCHER",
    "Matches",
    "Node",
    "Not",
    "Operator",
    "Or",
    "Satisfiability",
    "TopicFilter",
    "ValueKind",
    "admits",
    "check_satisfiability",
    "find_example",
    "joint_policy",
    "parse_topic_filter",
    "pinned_values",
    "quote_token",
    "relation",
    "serves",
    "topics_cover",
]
