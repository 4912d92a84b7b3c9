"""Streets that meet: onto which lanes a lane leads, and with what chance."""

from bisect import bisect_right
from itertools import accumulate

from carrycast.core.maps import Lane
from carrycast.core.model import Position
from carrycast.errors import UserError

_Heading = tuple[float, float]


class Streets:
    """The lanes of a map and the turns between them. Refuses a map with roads that cannot be reached."""

    def __init__(self, name: str, lanes: list[Lane], straight: float, left: float, right: float) -> None:
        self.lanes = lanes
        self._weight = {"straight": straight, "left": left, "right": right}
        leaving: dict[str, list[int]] = {}
        for number, lane in enumerate(lanes):
            leaving.setdefault(lane.origin, []).append(number)
        # For each lane the lanes it leads onto, and the chances of those added up.
        self.onto: list[list[int]] = []
        self._chances: list[list[float]] = []
        self.gap_m: list[dict[int, float]] = []
        for lane in lanes:
            ways = self._ways(lane, leaving.get(lane.target, []))
            if not ways:
                raise UserError(
                    f"manhattan: the map {name} has a gap: road {lane.road.id!r} leads to {lane.target!r} and nothing "
                    f"leads away from there; let a road go on, or not be one_way"
                )
            total = sum(ways.values())
            self.onto.append(list(ways))
            # Where the only ways left are those that have no chance, each is as good as the others.
            self._chances.append(list(accumulate(ways.values() if total > 0 else [1.0] * len(ways))))
            self.gap_m.append({onto: lane.gap_m(lanes[onto]) for onto in ways})
        self._check_gaps(name)

    def turn(self, lane: int, draw: float) -> int:
        """Onto which lane a lane leads, by a number drawn from 0 to 1."""
        chances = self._chances[lane]
        return self.onto[lane][min(bisect_right(chances, draw * chances[-1]), len(chances) - 1)]

    def at(self, lane: int, place_m: float) -> Position:
        """A place on a lane, so far from its start."""
        start, end, share = self.lanes[lane].start, self.lanes[lane].end, place_m / self.lanes[lane].length_m
        return Position(start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)

    def _ways(self, lane: Lane, leaving: list[int]) -> dict[int, float]:
        """The lanes that a lane leads onto, with their weights. Back only where there is no other way."""
        same = [onto for onto in leaving if self._is_lane_after(lane, self.lanes[onto])]
        onward = [onto for onto in same if not _goes_back(lane, self.lanes[onto])]
        if not onward:
            return dict.fromkeys(same, 1.0)
        sides = [turn_of(_heading(lane), _heading(self.lanes[onto])) for onto in onward]
        # Of several streets on the same side each gets its part.
        return {onto: self._weight[side] / sides.count(side) for onto, side in zip(onward, sides, strict=True)}

    def _is_lane_after(self, lane: Lane, onto: Lane) -> bool:
        return onto.number == min(lane.number, onto.road.lanes - 1)

    def _check_gaps(self, name: str) -> None:
        """Every road can be reached from every other: who can be reached from the first lane can also reach it."""
        backward: list[list[int]] = [[] for _ in self.lanes]
        for number, ways in enumerate(self.onto):
            for onto in ways:
                backward[onto].append(number)
        for graph, text in ((self.onto, "from {0} onto {1}"), (backward, "from {1} onto {0}")):
            reached = {0}
            todo = [0]
            while todo:
                new = [onto for onto in graph[todo.pop()] if onto not in reached]
                reached.update(new)
                todo += new
            for number, lane in enumerate(self.lanes):
                # Outer lanes may be out of reach where all other roads have fewer.
                if lane.number == 0 and number not in reached:
                    pieces = (f"road {each.road.id!r} to {each.target!r}" for each in (self.lanes[0], lane))
                    raise UserError(
                        f"manhattan: the map {name} has a gap: no way {text.format(*pieces)}; let roads that meet "
                        f"share a node, and those that end be no one_way"
                    )


def _goes_back(lane: Lane, onto: Lane) -> bool:
    return onto.road is lane.road and onto.piece == lane.piece


def _heading(lane: Lane) -> _Heading:
    return lane.end[0] - lane.start[0], lane.end[1] - lane.start[1]


def turn_of(before: _Heading, after: _Heading) -> str:
    """Straight within 45 degrees, else left or right; by products, so that every machine decides alike."""
    ahead = before[0] * after[0] + before[1] * after[1]
    leftward = before[0] * after[1] - before[1] * after[0]
    if ahead > abs(leftward):
        return "straight"
    return "left" if leftward > 0 else "right"
