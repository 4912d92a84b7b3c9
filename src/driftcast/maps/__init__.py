"""Road maps from files: read, checked, and two that come with driftcast. The map itself is a value in `model.roads`."""

from driftcast.maps.coverage import share_beyond
from driftcast.maps.lanes import Lane, lanes_of
from driftcast.maps.reader import read_map, shipped_maps

__all__ = ["Lane", "lanes_of", "read_map", "share_beyond", "shipped_maps"]
