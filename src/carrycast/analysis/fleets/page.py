"""HTML pages about a fleet and about its contacts. A page is one file without external resources."""

import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carrycast.analysis.fleets.cleaning import REASONS
from carrycast.analysis.fleets.picture import PictureData, draw_fleet
from carrycast.analysis.fleets.summary import fleet_sentences
from carrycast.analysis.reports import COLORS, CSS, DASHES, RESOLUTION_DPI, html_page, paper_style
from carrycast.sim.contacts import (
    ContactPlan,
    DistributionFit,
    ccdf,
    fit_distribution,
    islands_over_time,
    link_churn,
    node_degrees,
)
from carrycast.sim.mobility import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLEET_PICTURE = "fleet.png"
SCENARIO_FILE = "scenario.toml"


def write_fleet_page(folder: Path, facts: dict[str, Any], sight: PictureData) -> None:
    """Write the picture of a fleet, its summary page and an example scenario."""
    draw_fleet(sight, facts, folder / FLEET_PICTURE)
    image = base64.b64encode((folder / FLEET_PICTURE).read_bytes()).decode()
    (folder / "index.html").write_text(fleet_page(facts, image), "utf-8")
    (folder / SCENARIO_FILE).write_text(example_scenario(facts), "utf-8")


def example_scenario(facts: dict[str, Any]) -> str:
    """An example scenario: the fleet's first hour, and an event per minute from its first node to all others."""
    lasts_s = min(facts["duration_s"], 3600.0)
    return f"""\
name = "fleet"
duration_s = {lasts_s!r}
nodes = {facts["nodes"]}

[mobility]
model = "fleet"
folder = "."        # where this file is
start_s = 0.0       # of the recording's {facts["duration_s"]:g} s

[radio]
model = "disk"
range_m = 250.0

[protocol]
name = "epidemic"

[[subscribe]]
nodes = "all"

[[publish]]
nodes = [0]
interval_s = 60.0
to_s = {round(lasts_s / 2, 3)!r}
"""


def fleet_page(facts: dict[str, Any], image: str) -> str:
    """The summary page as HTML."""
    files = ", ".join(facts["files"]) if len(facts["files"]) <= 3 else f"{len(facts['files'])} files"
    rejected = sum(facts["rejected"].values())
    tiles = [
        (f"{facts['nodes']:,}", "nodes"),
        (f"{facts['positions']:,}", "positions"),
        (f"{rejected:,}", "rejected"),
        (duration_text(facts["duration_s"]), "long"),
        (f"{facts['area_m'][0] / 1000:.3g} × {facts['area_m'][1] / 1000:.3g} km", "area"),
    ]
    shown = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in tiles)
    body = [
        f"<h1>A fleet: {escape(files)}</h1>",
        f'<div class="tiles">{shown}</div>',
        f"<p>{escape(_period_and_map_text(facts))}</p>",
        '<figure class="wide"><img alt="tracks, number of nodes over time, and gaps" '
        f'src="data:image/png;base64,{image}">'
        "<figcaption>Left: where the nodes were. Darker places were visited more often, and lines are tracks of some "
        "nodes. Right: the number of nodes over time, and when some nodes were present. A gap in a line means that the "
        "node was absent, not that it stood still.</figcaption>"
        "</figure>",
        _cleaning_table(facts),
        _rules_text(facts),
        f"<h2>Simulate it</h2><p>This is <code>{SCENARIO_FILE}</code> beside this page:</p><pre>"
        + escape(example_scenario(facts))
        + "</pre>",
    ]
    return html_page("A fleet", "\n".join(body))


def duration_text(seconds: float) -> str:
    """A duration in a readable unit."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h" if seconds < 172_800 else f"{seconds / 86_400:.3g} days"


def _period_and_map_text(facts: dict[str, Any]) -> str:
    where = "places are meters as the file gives them" if facts["crs"] is None else f"its map is {facts['crs']}"
    return f"{'. '.join(one[0].upper() + one[1:] for one in fleet_sentences(facts))}. Here {where}."


def _cleaning_table(facts: dict[str, Any]) -> str:
    rows = [("read", "rows of all files", facts["rows"])]
    rows += [(reason, meaning, -facts["rejected"].get(reason, 0)) for reason, meaning in REASONS.items()]
    rows.append(("kept", "positions", facts["positions"]))
    if facts["resampled"] is not None:
        rows.append(("resampled", f"a row every {facts['rules']['every_s']:g} s", facts["resampled"]))
    cells = "".join(
        f'<tr><td>{escape(name)}</td><td>{escape(meaning)}</td><td class="n">{count:,}</td></tr>'
        for name, meaning, count in rows
    )
    return (
        "<h2>Rows read, rejected and kept</h2><table><thead><tr><th>step</th><th>meaning</th><th class=n>rows</th></tr>"
        f"</thead><tbody>{cells}</tbody></table><p>Rejected rows are in the folder <code>rejected</code>, with their "
        "reasons.</p>"
    )


def _rules_text(facts: dict[str, Any]) -> str:
    rules = ", ".join(f"{name} = {value}" for name, value in facts["rules"].items() if value is not None)
    return f"<p><small>Rules: {escape(rules)}</small></p>"


CONTACTS_PICTURE = "contacts.png"
WIDTH_IN = 7.16
# More points of a line cannot be distinguished.
POINTS = 2000


def write_contact_page(plan: ContactPlan, folder: Path) -> dict[str, object]:
    """Write `index.html` and its picture; return the fits of contact and inter-contact times."""
    lasting_s, between_s = plan.durations_s(), plan.inter_contact_s()
    fits = {"contact": fit_distribution(lasting_s), "inter_contact": fit_distribution(between_s)}
    _draw_contacts(plan, lasting_s, between_s, fits, folder / CONTACTS_PICTURE)
    image = base64.b64encode((folder / CONTACTS_PICTURE).read_bytes()).decode()
    (folder / "index.html").write_text(_contact_page(plan, fits, image), "utf-8")
    return {name: None if fit is None else {**fit._asdict(), "better": fit.better} for name, fit in fits.items()}


def _draw_contacts(
    plan: ContactPlan, lasting_s: Floats, between_s: Floats, fits: dict[str, DistributionFit | None], to: Path
) -> None:
    with paper_style():
        from matplotlib import pyplot as plt

        canvas, axes = plt.subplots(2, 3, figsize=(WIDTH_IN, 4.2), layout="constrained")
        _draw_ccdf(axes[0, 0], lasting_s, fits["contact"], "contact time (s)")
        _draw_ccdf(axes[0, 1], between_s, fits["inter_contact"], "time between contacts (s)")
        mean = node_degrees(plan)
        axes[0, 2].hist(mean, bins=min(30, max(5, plan.nodes // 4)), color=COLORS[0], alpha=0.8)
        axes[0, 2].set_xlabel("mean neighbors of a node")
        axes[0, 2].set_ylabel("nodes")
        scale_s, unit = (3600.0, "h") if plan.duration_s >= 7200 else (1.0, "s")
        found = islands_over_time(plan)
        axes[1, 0].step(found.time_s / scale_s, found.islands, where="mid", color=COLORS[0], linewidth=0.9)
        axes[1, 0].set_ylabel("islands of 2 or more")
        axes[1, 1].step(found.time_s / scale_s, found.largest, where="mid", color=COLORS[2], linewidth=0.9)
        axes[1, 1].set_ylabel("share in the largest")
        time_s, rate = link_churn(plan)
        axes[1, 2].step(time_s / scale_s, rate, where="mid", color=COLORS[3], linewidth=0.9)
        axes[1, 2].set_ylabel("changes / node / s")
        for ax in axes[1]:
            ax.set_xlabel(f"time ({unit})")
            ax.set_xlim(0, plan.duration_s / scale_s)
            ax.set_ylim(bottom=0)
        canvas.savefig(to, dpi=RESOLUTION_DPI)
        plt.close(canvas)


def _draw_ccdf(ax: "Axes", values: Floats, fit: DistributionFit | None, label: str) -> None:
    x, above = ccdf(values[values > 0])
    # The share above the last value is 0, which a logarithmic axis cannot show.
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


def _contact_page(plan: ContactPlan, fits: dict[str, DistributionFit | None], image: str) -> str:
    facts = plan.summary()
    tiles = [
        (f"{plan.nodes:,}", "nodes"),
        (f"{len(plan):,}", "contacts"),
        (duration_text(plan.duration_s), "long"),
        (f"{plan.mean_degree():.3g}", "mean neighbors"),
    ]
    shown = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in tiles)
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{"–" if value is None else f"{value:,.6g}"}</td></tr>'
        for name, value in facts.items()
    )
    laws = "".join(f"<p>{escape(_fit_sentence(name.replace('_', '-'), fit))}</p>" for name, fit in fits.items())
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


def _fit_sentence(name: str, fit: DistributionFit | None) -> str:
    if fit is None:
        return f"The {name} times are too few, or all alike: no law is fitted."
    text = f"Of the {name} times, {fit.values:,} are at least {fit.least:.4g} s: as a power law with exponent "
    text += f"{fit.exponent:.3g}, as an exponential law with mean {1 / fit.rate:.4g} s above that. "
    if fit.better is None:
        return text + f"Which fits better cannot be told (p = {fit.p:.2g})."
    return text + f"The {fit.better} fits better (p = {fit.p:.2g}, Vuong's test on the likelihoods)."
