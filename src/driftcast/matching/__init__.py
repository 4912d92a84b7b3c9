"""The filter language: parse, match, cover, overlap, and an index that matches many filters at once."""

from driftcast.matching.covering import CoverIndex
from driftcast.matching.eligibility import admits, serves
from driftcast.matching.errors import FilterError
from driftcast.matching.filter import Filter
from driftcast.matching.forest import Change, CoverForest
from driftcast.matching.index import FilterIndex
from driftcast.matching.pins import pinned

__all__ = ["Change", "CoverForest", "CoverIndex", "Filter", "FilterError", "FilterIndex", "admits", "pinned", "serves"]
