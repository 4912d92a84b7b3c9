"""The settings that all radios with signal powers share: transmitters, propagation, fading and obstacles."""

import math
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.core.settings import InputFile
from carrycast.errors import UserError
from carrycast.sim.radio.buildings import read_buildings
from carrycast.sim.radio.obstacles import Obstacles
from carrycast.sim.radio.path_loss import Floats, free_space_db, log_distance_db, noise_dbm, two_ray_db
from carrycast.sim.radio.radio import Radio

Decibels = Annotated[float, Meta(ge=-200, le=200)]
Loss = Annotated[float, Meta(ge=0, le=200)]
Shape = Annotated[float, Meta(ge=0.5, le=1000)]
FarMeters = Annotated[float, Meta(ge=0, le=1e7)]
Height = Annotated[float, Meta(gt=0, le=1e5)]
Bytes = Annotated[int, Meta(ge=0, le=65535)]
PathLoss = Literal["free_space", "two_ray", "log_distance"]
Fading = Literal["none", "rayleigh", "nakagami"]

FARTHEST_M = 1e7
"""No signal is considered beyond this distance, a quarter of the way around the earth."""
# A signal 10 dB below the noise raises the noise of a receiver by 0.4 dB.
IGNORED_DB = 10.0
# One link in a thousand is stronger than this allows. The largest possible range covers these deviations.
TAIL = 1e-3
TAIL_SIGMAS = 3.09


class RadioOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[radio.override]]`: some nodes whose transmitter or receiver differs from the others'."""

    nodes: list[Annotated[int, Meta(ge=0)]] | Annotated[str, Meta(min_length=1)]
    """The ids of the nodes, or a role."""
    tx_power_dbm: Decibels | None = None
    """Transmit power."""
    antenna_gain_dbi: Decibels | None = None
    """Gain of the antenna, for sending and for receiving."""
    antenna_height_m: Height | None = None
    """Height of the antenna, for two-ray ground."""
    sensitivity_dbm: Decibels | None = None
    """Weakest signal that is received."""


class SignalRadio(Radio, frozen=True, kw_only=True):
    """A radio that computes the power of each signal at each receiver. Subclasses are standards."""

    range_m: Annotated[
        float,
        Meta(
            ge=0,
            le=FARTHEST_M,
            description="distance of links for oracle discovery; 0: where the mean power is the sensitivity",
        ),
    ] = 0.0
    tx_power_dbm: Annotated[Decibels, Meta(description="transmit power")] = 20.0
    antenna_gain_dbi: Annotated[Decibels, Meta(description="gain of each antenna, for sending and for receiving")] = 0.0
    antenna_height_m: Annotated[Height, Meta(description="height of each antenna, for two_ray")] = 1.5
    sensitivity_dbm: (
        Annotated[Decibels, Meta(description="weakest signal that is received; the preset's if absent")] | None
    ) = None
    noise_figure_db: Annotated[Loss, Meta(description="noise that a receiver adds to thermal noise")] = 7.0
    path_loss: Annotated[PathLoss, Meta(description="model of the mean power over distance")] = "log_distance"
    path_exponent: Annotated[float, Meta(ge=1, le=8, description="exponent of log_distance")] = 3.0
    reference_m: Annotated[float, Meta(gt=0, le=1e4, description="up to here log_distance is free space")] = 1.0
    shadowing_db: Annotated[
        float, Meta(ge=0, le=30, description="standard deviation of lognormal shadowing; 0: none")
    ] = 0.0
    shadowing_m: Annotated[
        float, Meta(gt=0, le=1e5, description="movement over which the correlation of shadowing falls to 1/e")
    ] = 10.0
    fading: Annotated[Fading, Meta(description="variation of the power from frame to frame")] = "none"
    nakagami: Annotated[
        tuple[tuple[FarMeters, Shape], ...],
        Meta(min_length=1, max_length=20, description="from which distance on Nakagami's m has which value"),
    ] = ((0.0, 3.0), (50.0, 1.5), (150.0, 1.0))
    obstacles: (
        Annotated[InputFile, Meta(description="file of buildings that weaken signals: GeoJSON, or OpenStreetMap's XML")]
        | None
    ) = None
    obstacle_units: Annotated[
        Literal["degrees", "meters"], Meta(description="coordinates of the file: longitude and latitude, or meters")
    ] = "degrees"
    obstacle_origin: (
        Annotated[
            tuple[Annotated[float, Meta(ge=-180, le=180)], Annotated[float, Meta(gt=-90, lt=90)]],
            Meta(description="longitude and latitude of (0, 0); the south-west corner of the buildings if absent"),
        ]
        | None
    ) = None
    wall_loss_db: Annotated[Loss, Meta(description="loss for each wall of a building on the line of sight")] = 9.0
    meter_loss_db: Annotated[Loss, Meta(description="loss for each meter of the line of sight within a building")] = 0.4
    queue: Annotated[int, Meta(ge=1, le=1_000_000, description="largest number of waiting frames")] = 50
    override: Annotated[
        tuple[RadioOverride, ...],
        Meta(description="nodes with another transmitter or receiver; the last entry wins"),
    ] = ()

    def __post_init__(self) -> None:
        distances = [distance for distance, _ in self.nakagami]
        if distances[0] != 0 or any(a >= b for a, b in pairwise(distances)):
            raise ValueError("nakagami must begin at distance 0 and go on with larger ones, as in [[0, 3], [50, 1.5]]")
        self.check_settings()
        if self.range_m == 0:
            msgspec.structs.force_setattr(self, "range_m", self.nominal_range_m())

    def check_settings(self) -> None:
        """Raise a ValueError for settings that contradict each other."""

    def check(self, nodes: int, roles: Collection[str]) -> None:
        for place, entry in enumerate(self.override):
            at = f"override[{place}].nodes"
            if isinstance(entry.nodes, str):
                if entry.nodes not in roles:
                    raise UserError(f"{at}: there is no role {entry.nodes!r}; give a role, or a list of ids")
            elif beyond := [node for node in entry.nodes if node >= nodes]:
                raise UserError(f"{at}: there is no node {beyond[0]}; the scenario has {nodes}")

    def check_files(self) -> None:
        self.read_obstacles()

    def read_obstacles(self) -> Obstacles | None:
        """The buildings, if there are any."""
        if self.obstacles is None:
            return None
        buildings = read_buildings(Path(self.obstacles), self.obstacle_origin, self.obstacle_units == "meters")
        return Obstacles(buildings, self.wall_loss_db, self.meter_loss_db)

    # What a standard defines.

    @property
    def frequency_hz(self) -> float:
        """The carrier frequency."""
        raise NotImplementedError

    @property
    def bandwidth_hz(self) -> float:
        """The bandwidth of the channel, which determines the noise."""
        raise NotImplementedError

    @property
    def standard_sensitivity_dbm(self) -> float:
        """The sensitivity of a receiver for which no other is given."""
        raise NotImplementedError

    # What follows from the settings.

    @property
    def least_dbm(self) -> float:
        """The sensitivity of nodes without an override."""
        return self.standard_sensitivity_dbm if self.sensitivity_dbm is None else self.sensitivity_dbm

    @property
    def noise_dbm(self) -> float:
        """The noise at a receiver."""
        return noise_dbm(self.bandwidth_hz, self.noise_figure_db)

    def loss_db(self, distance_m: Floats, sender_m: float, receiver_m: Floats | float) -> Floats:
        """The path loss over distances, for heights of the antennas."""
        if self.path_loss == "free_space":
            return free_space_db(distance_m, self.frequency_hz)
        if self.path_loss == "two_ray":
            heights = np.broadcast_to(np.asarray(receiver_m, dtype=np.float64), np.shape(distance_m))
            if heights.size and (heights == heights.flat[0]).all():
                return two_ray_db(distance_m, self.frequency_hz, sender_m, float(heights.flat[0]))
            pairs = zip(distance_m.tolist(), heights.tolist(), strict=True)
            return np.array([float(two_ray_db(np.array(d), self.frequency_hz, sender_m, h)) for d, h in pairs])
        return log_distance_db(distance_m, self.frequency_hz, self.path_exponent, self.reference_m)

    def distance_of_loss(self, loss_db: float, sender_m: float, receiver_m: float) -> float:
        """The distance at which the path loss reaches a value. Path loss never falls over distance."""
        if float(self.loss_db(np.array([FARTHEST_M]), sender_m, receiver_m)[0]) <= loss_db:
            return FARTHEST_M
        low, high = 0.0, FARTHEST_M
        while high - low > 1e-6 * high:
            middle = math.sqrt(low * high) if low > 0 else high / 1e3
            if middle < 1e-3:
                break
            if float(self.loss_db(np.array([middle]), sender_m, receiver_m)[0]) <= loss_db:
                low = middle
            else:
                high = middle
        return max(low, 1e-3)

    def nominal_range_m(self) -> float:
        """Where the mean power equals the sensitivity, between two nodes without an override."""
        loss_db = self.tx_power_dbm + 2 * self.antenna_gain_dbi - self.least_dbm
        return self.distance_of_loss(loss_db, self.antenna_height_m, self.antenna_height_m)

    def allowance_db(self) -> float:
        """How much stronger than its mean a signal may be: all but one in a thousand are weaker."""
        fading_db = 0.0
        if self.fading != "none":
            shape = 1.0 if self.fading == "rayleigh" else min(shape for _, shape in self.nakagami)
            fading_db = 10 * math.log10(_largest_gain(shape))
        return TAIL_SIGMAS * self.shadowing_db + fading_db


def _largest_gain(shape: float) -> float:
    """A bound on the gain of Nakagami fading, by Chernoff's inequality: P(gain > x) <= (x exp(1 - x))^m."""
    low, high = 1.0, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if shape * (math.log(middle) + 1 - middle) > math.log(TAIL):
            low = middle
        else:
            high = middle
    return high
