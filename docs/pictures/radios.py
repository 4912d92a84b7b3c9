"""Draws the pictures of the pages on radios: `python docs/pictures/radios.py`."""

import json
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np

from carrycast.sim.radio.error_rates import OFDM_MODES, dsss_table, ofdm_table, table_802154
from carrycast.sim.radio.lora import LoraRadio, airtime_us
from carrycast.sim.radio.path_loss import crossover_m, free_space_db, log_distance_db, two_ray_db
from carrycast.sim.radio.shadowing import Shadowing
from carrycast.sim.radio.wifi_settings import WifiRadio
from carrycast.sim.scenario import load_scenario

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples" / "radios"
FREQUENCY_HZ = 5.9e9


def draw_path_loss(axes: Axes) -> None:
    """The three models over distance, and the crossover of two-ray ground."""
    distance = np.logspace(0, 4, 400)
    axes.semilogx(distance, free_space_db(distance, FREQUENCY_HZ), label="free_space")
    axes.semilogx(distance, two_ray_db(distance, FREQUENCY_HZ, 1.5, 1.5), label="two_ray, antennas at 1.5 m")
    for exponent in (2.7, 3.5):
        loss = log_distance_db(distance, FREQUENCY_HZ, exponent, 1.0)
        axes.semilogx(distance, loss, "--", label=f"log_distance, exponent {exponent}")
    cross_m = crossover_m(FREQUENCY_HZ, 1.5, 1.5)
    axes.axvline(cross_m, color="0.6", linewidth=0.8)
    axes.annotate(f"crossover\n{cross_m:.0f} m", (cross_m, 55), xytext=(4, 0), textcoords="offset points", color="0.4")
    axes.set(xlabel="distance (m)", ylabel="path loss (dB)")
    axes.legend(frameon=False)


def draw_shadowing(axes: Axes) -> None:
    """The shadowing from one sender to every place, which is correlated over 25 m."""
    field = Shadowing(6.0, 25.0, np.random.default_rng(4))
    step = np.linspace(0, 400, 161)
    places = np.stack(np.meshgrid(step, step), axis=-1).reshape(-1, 2)
    values = field.between(0, np.array([200.0, 200.0]), np.ones(len(places), dtype=np.int64), places)
    shown = axes.imshow(
        values.reshape(161, 161), extent=(0, 400, 0, 400), origin="lower", cmap="RdBu", vmin=-15, vmax=15
    )
    axes.plot(200, 200, "k^")
    axes.set(xlabel="x (m)", ylabel="y (m)")
    axes.figure.colorbar(shown, ax=axes, label="shadowing (dB)", shrink=0.85)


def draw_fading(axes: Axes) -> None:
    """The distribution of the power around its mean."""
    rng = np.random.default_rng(1)
    for shape, name in ((1.0, "rayleigh, or m = 1"), (1.5, "m = 1.5"), (3.0, "m = 3"), (10.0, "m = 10")):
        gains = np.sort(10 * np.log10(rng.standard_gamma(shape, 100_000) / shape))
        axes.plot(gains[::100], np.linspace(0, 1, len(gains[::100])), label=name)
    axes.set(xlim=(-20, 10), xlabel="power of a frame relative to the mean (dB)", ylabel="share of frames below")
    axes.grid(color="0.9")
    axes.legend(frameon=False)


def draw_obstacles(axes: Axes) -> None:
    """The mean power of one vehicle of the example at every place of the city."""
    scenario = load_scenario(EXAMPLES / "vehicles.toml")
    radio = scenario.radio_model()
    assert isinstance(radio, WifiRadio)
    obstacles = radio.read_obstacles()
    assert obstacles is not None
    here, step = np.array([340.0, 560.0]), np.linspace(2, 998, 250)
    power = np.zeros((250, 250))
    for row, y in enumerate(step.tolist()):
        places = np.stack((step, np.full(250, y)), axis=1)
        distance = np.hypot(*(places - here).T)
        loss = radio.loss_db(distance, 1.5, 1.5) + obstacles.losses_db(here, places, np.full(250, 1e9))
        power[row] = radio.tx_power_dbm - loss
    shown = axes.imshow(power, extent=(0, 1000, 0, 1000), origin="lower", cmap="viridis", vmin=-120, vmax=-50)
    for polygon in (one["geometry"]["coordinates"] for one in _features()):
        axes.fill(*zip(*polygon[0], strict=True), facecolor="none", edgecolor="white", linewidth=0.4)
    axes.contour(step, step, power, levels=[radio.least_dbm], colors="red", linewidths=0.8)
    axes.plot(*here, "r^")
    axes.set(xlabel="x (m)", ylabel="y (m)")
    axes.figure.colorbar(shown, ax=axes, label="mean power (dBm)", shrink=0.85)


def _features() -> list[dict[str, dict[str, list[list[list[float]]]]]]:
    features: list[dict[str, dict[str, list[list[list[float]]]]]] = json.loads(
        (EXAMPLES / "blocks.geojson").read_text()
    )["features"]
    return features


def draw_error_rates(axes: Axes) -> None:
    """The loss of frames of 500 bytes over the ratio of signal to noise."""
    ratios = np.arange(-6, 26, 0.1)
    curves = [
        ("802.15.4", table_802154()),
        ("802.11b, 1 Mb/s", dsss_table(1e6)),
        ("802.11b, 11 Mb/s", dsss_table(11e6)),
        *(
            (f"802.11p, {mode.bits_per_symbol / 8:g} Mb/s", ofdm_table(mode, "nist", 10e6))
            for mode in (OFDM_MODES[0], OFDM_MODES[2], OFDM_MODES[4], OFDM_MODES[6], OFDM_MODES[7])
        ),
    ]
    for name, table in curves:
        axes.plot(ratios, [table.error_rate(float(ratio), 4000) for ratio in ratios], label=name)
    axes.set(xlabel="signal to noise and interference (dB)", ylabel="share of frames of 500 bytes lost")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def draw_lora(axes: Axes) -> None:
    """The airtime of a frame over its size, for each spreading factor."""
    sizes = np.arange(0, 256, 1)
    radio = LoraRadio()
    for factor in range(7, 13):
        axes.semilogy(sizes, [airtime_us(radio, factor, int(size)) / 1e6 for size in sizes], label=f"SF {factor}")
    axes.set(xlabel="frame with headers (bytes)", ylabel="airtime at 125 kHz (s)")
    axes.grid(color="0.9")
    axes.legend(frameon=False, ncols=2)


def draw_capture(axes: Axes) -> None:
    """What two simultaneous frames leave at a receiver, over the ratio of their powers."""
    ratios = np.arange(0, 12.1, 0.25)
    table = ofdm_table(OFDM_MODES[2], "nist", 10e6)
    axes.plot(ratios, [1 - table.error_rate(float(ratio), 4000) for ratio in ratios], label="802.11p, 6 Mb/s")
    axes.plot(ratios, [float(ratio >= 6.0) for ratio in ratios], label="LoRa, one spreading factor")
    axes.set(xlabel="stronger frame over the weaker one (dB)", ylabel="chance that the stronger one is read")
    axes.legend(frameon=False)


PICTURES: dict[str, tuple[Callable[[Axes], None], tuple[float, float]]] = {
    "radio-path-loss": (draw_path_loss, (6.4, 3.6)),
    "radio-shadowing": (draw_shadowing, (5.2, 4.2)),
    "radio-fading": (draw_fading, (6.4, 3.6)),
    "radio-obstacles": (draw_obstacles, (6.0, 4.8)),
    "radio-error-rates": (draw_error_rates, (6.4, 3.8)),
    "radio-capture": (draw_capture, (6.4, 3.2)),
    "radio-lora": (draw_lora, (6.4, 3.6)),
}


def main() -> None:
    """Draw all pictures."""
    for name, (draw, size) in PICTURES.items():
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        draw(axes)
        figure.savefig(HERE / f"{name}.png", dpi=110)
        plt.close(figure)


if __name__ == "__main__":
    main()
