"""The filter language: parse, match, cover, overlap, and an index that matches many filters at once."""

from carrycast.core.matching.covering import CoverChange, CoverForest, CoverIndex
from carrycast.core.matching.eligibility import admits, serves
from carrycast.core.matching.errors import FilterError
from carrycast.core.matching.filter import Filter, pinned_values
from carrycast.core.matching.index import FilterIndex

__all__ = [
    "CoverChange",
    "CoverForest",
    "CoverIndex",
    "Filter",
    "FilterError",
    "FilterIndex",
    "admits",
    "pinned_values",
    "serves",
]
