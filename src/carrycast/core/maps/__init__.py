"""Road maps: read from files and validated, with two built-in maps. The map type is in `model.roads`."""

from carrycast.core.maps.lanes import Lane, lanes_of
from carrycast.core.maps.reader import read_map, share_beyond, shipped_maps

__all__ = ["Lane", "lanes_of", "read_map", "share_beyond", "shipped_maps"]
