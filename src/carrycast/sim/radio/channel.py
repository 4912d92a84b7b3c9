"""The channel: which nodes a transmission reaches, and with what power.

The power at a receiver is the transmit power and the antenna gains, less path loss, shadowing and the loss of
buildings; fading varies it from frame to frame. All but fading follow from the places of the nodes. Places are read
once for each meter that the fastest node moves, and the powers of a sender are kept until then.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId
from carrycast.sim.radio.radio import RadioContext
from carrycast.sim.radio.shadowing import Shadowing
from carrycast.sim.radio.signal_settings import IGNORED_DB, RadioOverride, SignalRadio

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

# Places are read again when the fastest node may have moved so far, less than the length of a vehicle.
RESOLUTION_M = 1.0
# At the latest after this time, because a node may appear or disappear, however slowly all move.
LONGEST_STEP_S = 1.0


class Hearers:
    """The nodes that a sender may reach, by id, with the mean powers of its signals there."""

    __slots__ = ("ids", "mean_mw", "readable", "shape")

    def __init__(self, ids: Integers, mean_mw: Floats, readable: Booleans, shape: Floats | None) -> None:
        self.ids = ids
        self.mean_mw = mean_mw
        self.readable = readable
        """Whether the mean power is at least the sensitivity: nodes that should receive."""
        self.shape = shape
        """Nakagami's m of each link; None without fading."""


class NodeTraits:
    """The transmitters and receivers of all nodes."""

    def __init__(self, settings: SignalRadio, context: RadioContext) -> None:
        nodes = context.nodes
        self.power_dbm = np.full(nodes, settings.tx_power_dbm)
        self.gain_dbi = np.full(nodes, settings.antenna_gain_dbi)
        self.height_m = np.full(nodes, settings.antenna_height_m)
        self.sensitivity_dbm = np.full(nodes, settings.least_dbm)
        for entry in settings.override:
            chosen = chosen_nodes(entry, context)
            for trait, value in (
                (self.power_dbm, entry.tx_power_dbm),
                (self.gain_dbi, entry.antenna_gain_dbi),
                (self.height_m, entry.antenna_height_m),
                (self.sensitivity_dbm, entry.sensitivity_dbm),
            ):
                if value is not None:
                    trait[chosen] = value


def chosen_nodes(entry: RadioOverride, context: RadioContext) -> list[NodeId]:
    """The nodes of an override."""
    return context.roles[entry.nodes] if isinstance(entry.nodes, str) else entry.nodes


class SignalChannel:
    """The powers of signals between all nodes of a run."""

    def __init__(self, settings: SignalRadio, context: RadioContext, traits: NodeTraits) -> None:
        assert context.positions is not None, "a channel needs to know where nodes are"
        self._settings = settings
        self._nodes = context.nodes
        self._positions: Callable[[float], Floats] = context.positions
        self._step_us = _step_us(context.fastest_mps)
        self._traits = traits
        seed = context.rng.getrandbits(64)
        self.rng = np.random.default_rng(seed)
        """The only source of randomness of signals: fading and errors."""
        self._shadowing: Shadowing | None = None
        if settings.shadowing_db > 0:
            self._shadowing = Shadowing(settings.shadowing_db, settings.shadowing_m, np.random.default_rng((seed, 1)))
        self.obstacles = settings.read_obstacles()
        self._steps_m = np.array([distance for distance, _ in settings.nakagami])
        self._shapes = np.array([shape for _, shape in settings.nakagami])
        self.noise_mw = 10 ** (settings.noise_dbm / 10)
        # Weaker mean powers are ignored: they neither can be received nor raise the noise.
        allowance_db = max(IGNORED_DB, settings.allowance_db())
        self._least_dbm = np.minimum(traits.sensitivity_dbm, settings.noise_dbm) - allowance_db
        self.largest_m = self._largest_range_m()
        self._grid: NodeGrid | None = None
        self._step = -1
        self._kept: dict[NodeId, Hearers] = {}

    def _largest_range_m(self) -> float:
        """The distance beyond which no signal matters."""
        traits = self._traits
        most_db = float(traits.power_dbm.max() + 2 * traits.gain_dbi.max() - self._least_dbm.min())
        highest_m = float(traits.height_m.max())
        return self._settings.distance_of_loss(most_db, highest_m, highest_m)

    def hearers(self, sender: NodeId, now_us: int) -> Hearers:
        """The nodes that a sender may reach now."""
        step = now_us // self._step_us
        if step != self._step:
            self._move(step)
        found = self._kept.get(sender)
        if found is None:
            found = self._kept[sender] = self._compute(sender)
        return found

    def _move(self, step: int) -> None:
        self._step = step
        places = self._positions(step * self._step_us / 1e6)
        # Where nobody has moved, all powers are as they were.
        if self._grid is None or not np.array_equal(places, self._grid.places, equal_nan=True):
            self._grid = NodeGrid(places, self.largest_m)
            self._kept.clear()

    def _compute(self, sender: NodeId) -> Hearers:
        grid, traits, settings = self._grid, self._traits, self._settings
        assert grid is not None
        place = grid.places[sender]
        ids = grid.near(place)
        ids = ids[ids != sender]
        places = grid.places[ids]
        offset = places - place
        distance = np.hypot(offset[:, 0], offset[:, 1])
        loss = settings.loss_db(distance, float(traits.height_m[sender]), traits.height_m[ids])
        power = traits.power_dbm[sender] + traits.gain_dbi[sender] + traits.gain_dbi[ids] - loss
        near = power >= self._least_dbm[ids]
        ids, places, distance, power = ids[near], places[near], distance[near], power[near]
        if self._shadowing is not None and len(ids):
            power = power - self._shadowing.between(sender, place, ids, places)
        if self.obstacles is not None:
            power = power - self.obstacles.losses_db(place, places, power - self._least_dbm[ids])
        if self._shadowing is not None or self.obstacles is not None:
            near = power >= self._least_dbm[ids]
            ids, distance, power = ids[near], distance[near], power[near]
        shape: Floats | None = None
        if settings.fading == "rayleigh":
            shape = np.ones(len(ids))
        elif settings.fading == "nakagami":
            shape = self._shapes[np.searchsorted(self._steps_m, distance, side="right") - 1]
        return Hearers(ids, 10 ** (power / 10), power >= traits.sensitivity_dbm[ids], shape)

    def fade(self, hearers: Hearers) -> Floats:
        """The powers of one transmission. With Nakagami fading the gain in power is gamma-distributed with mean 1
        [M. Nakagami, The m-Distribution, 1960]; m = 1 is Rayleigh fading."""
        if hearers.shape is None:
            return hearers.mean_mw
        return hearers.mean_mw * (self.rng.standard_gamma(hearers.shape) / hearers.shape)


def _step_us(fastest_mps: float) -> int:
    step_s = LONGEST_STEP_S if fastest_mps <= 0 else min(LONGEST_STEP_S, RESOLUTION_M / fastest_mps)
    return max(1, math.floor(step_s * 1e6))


class NodeGrid:
    """The places of all nodes in cells as wide as the largest range, so that few are compared."""

    def __init__(self, places: Floats, cell_m: float) -> None:
        self.places = places
        present = np.flatnonzero(~np.isnan(places[:, 0]))
        self._cell_m = cell_m
        self._corner: Floats = places[present].min(axis=0) if len(present) else np.zeros(2)
        column, row = self._cells(places[present])
        self._width = int(column.max(initial=0)) + 1
        height = int(row.max(initial=0)) + 1
        self._all: Integers | None = present if self._width <= 2 and height <= 2 else None
        cells = row * self._width + column
        order = np.argsort(cells, kind="stable")
        self._ids, self._sorted = present[order], cells[order]

    def _cells(self, places: Floats) -> tuple[Integers, Integers]:
        scaled = (places - self._corner) / self._cell_m
        return scaled[:, 0].astype(np.int64), scaled[:, 1].astype(np.int64)

    def near(self, place: Floats) -> Integers:
        """The nodes in the cell of a place and in those around it, by id; nobody is near an absent node."""
        if math.isnan(place[0]):
            return self._ids[:0]
        if self._all is not None:
            return self._all
        columns, rows = self._cells(place[None, :])
        column, row = int(columns[0]), int(rows[0])
        low, high = max(column - 1, 0), min(column + 1, self._width - 1)
        parts: Sequence[Integers] = [
            self._ids[slice(*np.searchsorted(self._sorted, (line * self._width + low, line * self._width + high + 1)))]
            for line in (row - 1, row, row + 1)
            if line >= 0
        ]
        return np.sort(np.concatenate(parts))
