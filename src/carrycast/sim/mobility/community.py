"""Community: nodes belong to groups, each group lives in a square of a grid, and nodes go where their friends are.

The community model of Musolesi and Mascolo, with the travelers that the adaptive routing paper [004 §5.1.1] added.
"""

import heapq
from random import Random
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area, MobilityModel
from carrycast.sim.mobility.trajectory import Floats, Trajectories

# The social matrix has an entry for each pair: 4000 nodes take 128 MB.
MAX_NODES = 4000
# As for random waypoint: with more legs, area and speeds are probably in different units.
MAX_LEGS = 50_000_000

Speed = Annotated[float, Meta(gt=0, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]
Squares = Annotated[int, Meta(ge=1, le=1000)]


def social_matrix(group: list[int], rewiring: float, threshold: float, rng: np.random.Generator) -> Floats:
    """Draw the strengths of the ties between nodes: 0 to 1, symmetric, 0 on the diagonal.

    Ties within a group are strong, 1 - threshold to 1; others are weak, 0 to threshold. With probability `rewiring` a
    tie within a group becomes weak, and one of the two nodes gets a strong tie to a random outsider instead.
    """
    nodes = len(group)
    of = np.array(group)
    noise = np.triu(rng.random((nodes, nodes)) * threshold, 1)
    noise += noise.T
    together = of[:, None] == of[None, :]
    ties: Floats = np.where(together, 1.0 - noise, noise)
    rewired = np.argwhere(np.triu(together & (rng.random((nodes, nodes)) < rewiring), 1))
    for one, other in rewired.tolist():
        outsiders = np.flatnonzero((of != of[one]) & (ties[one] < threshold))
        if len(outsiders):
            friend = int(outsiders[rng.integers(len(outsiders))])
            strong, weak = 1.0 - threshold * rng.random(), threshold * rng.random()
            ties[one, friend] = ties[friend, one] = strong
            ties[one, other] = ties[other, one] = weak
    np.fill_diagonal(ties, 0.0)
    return ties


def attraction(ties: Floats, goals: "np.ndarray[tuple[int], np.dtype[np.int64]]", squares: int) -> Floats:
    """The attraction of each square for a node: its mean tie to the nodes that go there; 0 for an empty square."""
    drawn = np.bincount(goals, weights=ties, minlength=squares)
    heads = np.bincount(goals, minlength=squares)
    pull: Floats = drawn / np.maximum(heads, 1)
    return pull


class Community(MobilityModel, frozen=True, kw_only=True):
    """Groups in squares, ties between nodes, and travelers that always go on to another group.

    Node i belongs to group i mod `groups`. Nodes 0 to `travelers` - 1 travel, so that raising `travelers` keeps the
    earlier ones.
    """

    name: ClassVar[str] = "community"
    summary: ClassVar[str] = (
        "groups in squares of a grid; nodes go where their friends are, travelers from group to group"
    )

    # [004 §5.1.1] An 8 x 8 grid.
    columns: Annotated[Squares, Meta(description="squares of the grid from left to right")] = 8
    rows: Annotated[Squares, Meta(description="squares of the grid from bottom to top")] = 8
    # The paper gives no number of groups. Ten is the default of the model's own generator.
    groups: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="each has a square of its own; not more than squares or nodes",
        ),
    ] = 10
    # [004 §5.2] Sixteen in the table of utility weights, the only number that is given.
    travelers: Annotated[
        int, Meta(ge=0, le=1_000_000, description="how many nodes always move on to another square")
    ] = 16
    # [004 §5.1.2]
    speed_min_mps: Annotated[Speed, Meta(description="lowest speed of nodes that are no travelers")] = 1.0
    speed_max_mps: Annotated[Speed, Meta(description="highest speed of nodes that are no travelers")] = 10.0
    traveler_speed_mps: Annotated[Speed, Meta(description="speed of every traveler")] = 20.0
    # Each node keeps the speed it was given, as in the model's generator; "leg" draws one for each leg.
    speed_drawn: Annotated[
        Literal["node", "leg"], Meta(description="node: one speed for each node; leg: a new one for each leg")
    ] = "node"
    # Both as in the model's generator.
    rewiring: Annotated[
        Share, Meta(description="probability that a tie within a group is replaced by one to another group")
    ] = 0.1
    threshold: Annotated[
        float, Meta(gt=0, lt=0.5, description="weak ties are from 0 to this, strong ties from 1 minus this to 1")
    ] = 0.1
    # Deterministic as the paper has it: "the group of hosts that exert the highest attraction".
    choice: Annotated[
        Literal["deterministic", "probabilistic"],
        Meta(description="the square of highest attraction, or one drawn in proportion to attraction"),
    ] = "deterministic"
    # Only for probabilistic choice; the generator's value.
    drift: Annotated[
        Share, Meta(description="with probabilistic choice, what is added to the attraction of every square")
    ] = 0.01

    def __post_init__(self) -> None:
        if self.speed_min_mps > self.speed_max_mps:
            raise ValueError(
                f"speed_min_mps ({self.speed_min_mps:g}) must not exceed speed_max_mps ({self.speed_max_mps:g})"
            )
        if self.groups > self.columns * self.rows:
            raise ValueError(
                f"groups ({self.groups}) live in squares of their own, and there are {self.columns * self.rows}"
            )

    def check(self, nodes: int) -> None:
        """Reject a number of nodes that does not fit the settings."""
        if self.travelers > nodes:
            raise UserError(f"community: travelers ({self.travelers}) must not exceed the number of nodes ({nodes})")
        if self.groups > nodes:
            raise UserError(f"community: groups ({self.groups}) must not exceed the number of nodes ({nodes})")
        if nodes > MAX_NODES:
            raise UserError(f"community: at most {MAX_NODES} nodes, not {nodes}: every pair of them has a tie")

    def trajectories(self, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> Trajectories:
        """Draw legs in the order of arrivals, since each choice depends on the goals of the other nodes."""
        self.check(nodes)
        slowest_leg_m = min(area.width_m / self.columns, area.height_m / self.rows) / 2
        fastest_mps = max(self.speed_max_mps, self.traveler_speed_mps)
        if nodes * duration_s * fastest_mps / slowest_leg_m > MAX_LEGS:
            raise UserError(
                f"community might make more than {MAX_LEGS} legs; use a larger area, lower speeds, fewer nodes or a "
                f"shorter run"
            )
        walk = _Walk(self, nodes, area, duration_s, rng)
        walk.run()
        return walk.trajectories()


class _Leg(NamedTuple):
    node: int
    start_s: float
    end_s: float
    x_m: float
    y_m: float
    vx_mps: float
    vy_mps: float


class _Walk:
    """The legs of all nodes so far, and the square that each is going to."""

    def __init__(self, model: Community, nodes: int, area: Area, duration_s: float, rng: np.random.Generator) -> None:
        self.model = model
        self.nodes = nodes
        self.duration_s = duration_s
        self.squares = model.columns * model.rows
        self.width_m = area.width_m / model.columns
        self.height_m = area.height_m / model.rows
        group = [node % model.groups for node in range(nodes)]
        self.ties = social_matrix(group, model.rewiring, model.threshold, rng)
        home = rng.permutation(self.squares)[: model.groups]
        self.goals = home[np.array(group)]
        self.speed_mps = rng.uniform(model.speed_min_mps, model.speed_max_mps, nodes)
        self.speed_mps[: model.travelers] = model.traveler_speed_mps
        # Each node has its own random stream, so that its draws do not shift those of the others.
        self.streams = [Random(int(seed)) for seed in rng.integers(0, 2**63, nodes)]
        self.legs: list[_Leg] = []
        self.place = [self._draw_place(node, int(self.goals[node])) for node in range(nodes)]

    def run(self) -> None:
        """Start every node in the square of its group, moving within it; then draw legs until the end of the run."""
        arrivals: list[tuple[float, int]] = []
        for node in range(self.nodes):
            arrivals.append((self._go(node, 0.0, int(self.goals[node])), node))
        heapq.heapify(arrivals)
        while arrivals:
            time_s, node = heapq.heappop(arrivals)
            if time_s < self.duration_s:
                square = self._next_square(node)
                self.goals[node] = square
                heapq.heappush(arrivals, (self._go(node, time_s, square), node))

    def trajectories(self) -> Trajectories:
        """Return all legs as trajectories."""
        columns = [np.array(column, dtype=np.float64) for column in zip(*self.legs, strict=True)]
        return Trajectories.from_legs(self.nodes, columns[0].astype(np.int64), *columns[1:])

    def _next_square(self, node: int) -> int:
        """[004 §5.1.1] The square of highest attraction; for a traveler, of all but the one it is in."""
        model, here = self.model, int(self.goals[node])
        pull = attraction(self.ties[node], self.goals, self.squares)
        travels = node < model.travelers
        if model.choice == "probabilistic":
            pull += model.drift
            if travels:
                pull[here] = 0.0
            total = float(pull.sum())
            return self._draw_square(node, pull, total) if total > 0 else here
        if travels:
            pull[here] = -1.0
        best = int(pull.argmax())
        # A traveler whose group is the only one stays, since there is no other group.
        return best if pull[best] > 0 else here

    def _draw_square(self, node: int, pull: Floats, total: float) -> int:
        place = int(np.searchsorted(np.cumsum(pull), self.streams[node].random() * total, side="right"))
        return min(place, self.squares - 1)

    def _go(self, node: int, now_s: float, square: int) -> float:
        """Add a leg to a random place in a square, and return the time of arrival."""
        x_m, y_m = self.place[node]
        goal_x_m, goal_y_m = self.place[node] = self._draw_place(node, square)
        length_m = float(np.hypot(goal_x_m - x_m, goal_y_m - y_m))
        speed_mps = float(self.speed_mps[node])
        if self.model.speed_drawn == "leg" and node >= self.model.travelers:
            speed_mps = self.streams[node].uniform(self.model.speed_min_mps, self.model.speed_max_mps)
        there_s = now_s + length_m / speed_mps
        if there_s > now_s:
            vx, vy = (goal_x_m - x_m) / (there_s - now_s), (goal_y_m - y_m) / (there_s - now_s)
            self.legs.append(_Leg(node, now_s, min(there_s, self.duration_s), x_m, y_m, vx, vy))
        return there_s

    def _draw_place(self, node: int, square: int) -> tuple[float, float]:
        row, column = divmod(square, self.model.columns)
        draw = self.streams[node].random
        return (column + draw()) * self.width_m, (row + draw()) * self.height_m
