"""The filter language: parse, match, cover, overlap, and an index that matches many filters at once."""

from carrycast.core.matching.covering import CoverIndex
from carrycast.core.matching.eligibility import admits, serves
from carrycast.core.matching.errors import FilterError
from carrycast.core.matching.filter import Filter
from carrycast.core.matching.forest import Change, CoverForest
from carrycast.core.matching.index import FilterIndex
from carrycast.core.matching.pins import pinned

__all__ = ["Change", "CoverForest", "CoverIndex", "Filter", "FilterError", "FilterIndex", "admits", "pinned", "serves"]
