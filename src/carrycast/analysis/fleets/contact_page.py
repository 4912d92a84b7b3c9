"""The statistics of a contact plan: a page with pictures."""

import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from carrycast.analysis.fleets.page import duration
from carrycast.analysis.reports.css import CSS
from carrycast.analysis.reports.style import COLORS, DASHES, RESOLUTION_DPI, paper_style
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.contacts.statistics import Fit, ccdf, churn, degrees, fitted, islands_over_time
from carrycast.sim.mobility.trajectory import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = "contacts.png"
WIDTH_IN = 7.16
# Points of a line: more are not seen.
POINTS = 2000


def write_contact_page(plan: ContactPlan, folder: Path) -> dict[str, object]:
    """Write `index.html` and the picture; returns the fits of both times."""
    lasting_s, between_s = plan.durations_s(), plan.inter_contact_s()
    fits = {"contact": fitted(lasting_s), "inter_contact": fitted(between_s)}
    _draw(plan, lasting_s, between_s, fits, folder / PICTURE)
    image = base64.b64encode((folder / PICTURE).read_bytes()).decode()
    (folder / "index.html").write_text(_page(plan, fits, image), "utf-8")
    return {name: None if fit is None else {**fit._asdict(), "better": fit.better} for name, fit in fits.items()}


def _draw(plan: ContactPlan, lasting_s: Floats, between_s: Floats, fits: dict[str, Fit | None], to: Path) -> None:
    with paper_style():
        from matplotlib import pyplot as plt

        canvas, axes = plt.subplots(2, 3, figsize=(WIDTH_IN, 4.2), layout="constrained")
        _draw_ccdf(axes[0, 0], lasting_s, fits["contact"], "contact time (s)")
        _draw_ccdf(axes[0, 1], between_s, fits["inter_contact"], "time between contacts (s)")
        mean = degrees(plan)
        axes[0, 2].hist(mean, bins=min(30, max(5, plan.nodes // 4)), color=COLORS[0], alpha=0.8)
        axes[0, 2].set_xlabel("mean neighbors of a node")
        axes[0, 2].set_ylabel("nodes")
        scale_s, unit = (3600.0, "h") if plan.duration_s >= 7200 else (1.0, "s")
        found = islands_over_time(plan)
        axes[1, 0].step(found.time_s / scale_s, found.islands, where="mid", color=COLORS[0], linewidth=0.9)
        axes[1, 0].set_ylabel("islands of 2 or more")
        axes[1, 1].step(found.time_s / scale_s, found.largest, where="mid", color=COLORS[2], linewidth=0.9)
        axes[1, 1].set_ylabel("share in the largest")
        time_s, rate = churn(plan)
        axes[1, 2].step(time_s / scale_s, rate, where="mid", color=COLORS[3], linewidth=0.9)
        axes[1, 2].set_ylabel("changes / node / s")
        for ax in axes[1]:
            ax.set_xlabel(f"time ({unit})")
            ax.set_xlim(0, plan.duration_s / scale_s)
            ax.set_ylim(bottom=0)
        canvas.savefig(to, dpi=RESOLUTION_DPI)
        plt.close(canvas)


def _draw_ccdf(ax: "Axes", values: Floats, fit: Fit | None, label: str) -> None:
    x, above = ccdf(values[values > 0])
    # The last value has nothing above it, and no place on a logarithmic axis.
    x, above = x[:-1], above[:-1]
    if len(x) > POINTS:
        few = np.unique(np.geomspace(1, len(x), POINTS).astype(np.int64)) - 1
        few = np.unique(np.concatenate((few, len(x) - 1 - few)))
        x, above = x[few], above[few]
    if len(x):
        ax.loglog(x, above, color=COLORS[0], label="measured")
    if fit is not None and len(x):
        tail = np.geomspace(fit.least, float(x[-1]), 100)
        share = float((values >= fit.least).mean())
        power, exponential = (tail / fit.least) ** -fit.exponent, np.exp(-fit.rate * (tail - fit.least))
        ax.loglog(tail, share * power, color=COLORS[3], linestyle=DASHES[1], label="power law")
        ax.loglog(tail, share * exponential, color=COLORS[2], linestyle=DASHES[2], label="exponential")
        ax.set_ylim(bottom=max(float(above[-1]) / 2, 1e-9), top=1.5)
        ax.legend(loc="lower left")
    ax.set_xlabel(label)
    ax.set_ylabel("share above")


def _page(plan: ContactPlan, fits: dict[str, Fit | None], image: str) -> str:
    facts = plan.summary()
    tiles = [
        (f"{plan.nodes:,}", "nodes"),
        (f"{len(plan):,}", "contacts"),
        (duration(plan.duration_s), "long"),
        (f"{plan.mean_degree():.3g}", "mean neighbors"),
    ]
    shown = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in tiles)
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{"–" if value is None else f"{value:,.6g}"}</td></tr>'
        for name, value in facts.items()
    )
    laws = "".join(f"<p>{escape(_sentence(name.replace('_', '-'), fit))}</p>" for name, fit in fits.items())
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Contacts</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n<h1>Contacts</h1>\n"
        f'<div class="tiles">{shown}</div>\n<figure class="wide"><img alt="statistics of contacts" '
        f'src="data:image/png;base64,{image}"><figcaption>Above: how long contacts last and how long pairs are apart, '
        "with both laws fitted to the tail; the mean neighbors of each node. Below: islands, the largest of them, and "
        f"links that come or go. Contacts cut off by the start or the end count as long as they were seen.</figcaption>"
        f"</figure>\n<h2>Laws</h2>\n{laws}\n<h2>Numbers</h2>\n<table><tbody>{rows}</tbody></table>\n"
        "</main>\n</body>\n</html>\n"
    )


def _sentence(name: str, fit: Fit | None) -> str:
    if fit is None:
        return f"The {name} times are too few, or all alike: no law is fitted."
    told = f"Of the {name} times, {fit.values:,} are at least {fit.least:.4g} s: as a power law with exponent "
    told += f"{fit.exponent:.3g}, as an exponential law with mean {1 / fit.rate:.4g} s above that. "
    if fit.better is None:
        return told + f"Which fits better cannot be told (p = {fit.p:.2g})."
    return told + f"The {fit.better} fits better (p = {fit.p:.2g}, Vuong's test on the likelihoods)."
