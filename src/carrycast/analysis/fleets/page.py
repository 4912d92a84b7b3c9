"""The summary of a fleet's folder: one page that needs no network."""

import base64
from html import escape
from pathlib import Path
from typing import Any

from carrycast.analysis.fleets.cleaning import REASONS
from carrycast.analysis.fleets.picture import Sight, draw
from carrycast.analysis.fleets.summary import sentences
from carrycast.analysis.reports.css import CSS

PICTURE = "fleet.png"
SCENARIO_FILE = "scenario.toml"


def write_page(folder: Path, facts: dict[str, Any], sight: Sight) -> None:
    """Draw the fleet and say what was made of its files."""
    draw(sight, facts, folder / PICTURE)
    image = base64.b64encode((folder / PICTURE).read_bytes()).decode()
    (folder / "index.html").write_text(page(facts, image), "utf-8")
    (folder / SCENARIO_FILE).write_text(scenario(facts), "utf-8")


def scenario(facts: dict[str, Any]) -> str:
    """One to begin with: the fleet's first hour, and an event a minute from its first node to all others."""
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


def page(facts: dict[str, Any], image: str) -> str:
    """As HTML."""
    files = ", ".join(facts["files"]) if len(facts["files"]) <= 3 else f"{len(facts['files'])} files"
    rejected = sum(facts["rejected"].values())
    tiles = [
        (f"{facts['nodes']:,}", "nodes"),
        (f"{facts['positions']:,}", "positions"),
        (f"{rejected:,}", "rejected"),
        (duration(facts["duration_s"]), "long"),
        (f"{facts['area_m'][0] / 1000:.3g} × {facts['area_m'][1] / 1000:.3g} km", "area"),
    ]
    shown = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in tiles)
    body = [
        f"<h1>A fleet: {escape(files)}</h1>",
        f'<div class="tiles">{shown}</div>',
        f"<p>{escape(_when_and_where(facts))}</p>",
        f'<figure class="wide"><img alt="paths, nodes over time and gaps" src="data:image/png;base64,{image}">'
        "<figcaption>Left: where the fleet is, dark where often, and the ways of some nodes. Right: how many nodes "
        "are there, and when each of some is; where a line has a gap, the node is absent, not parked.</figcaption>"
        "</figure>",
        _steps(facts),
        _rules(facts),
        f"<h2>Play it</h2><p>As in <code>{SCENARIO_FILE}</code> beside this page:</p><pre>"
        + escape(scenario(facts))
        + "</pre>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>A fleet</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def duration(seconds: float) -> str:
    """As people say it."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h" if seconds < 172_800 else f"{seconds / 86_400:.3g} days"


def _when_and_where(facts: dict[str, Any]) -> str:
    where = "places are meters as the file gives them" if facts["crs"] is None else f"its map is {facts['crs']}"
    return f"{'. '.join(one[0].upper() + one[1:] for one in sentences(facts))}. Here {where}."


def _steps(facts: dict[str, Any]) -> str:
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
        "<h2>What became of the rows</h2><table><thead><tr><th>step</th><th>meaning</th><th class=n>rows</th></tr>"
        f"</thead><tbody>{cells}</tbody></table><p>Rejected rows are in the folder <code>rejected</code>, with their "
        "reasons.</p>"
    )


def _rules(facts: dict[str, Any]) -> str:
    told = ", ".join(f"{name} = {value}" for name, value in facts["rules"].items() if value is not None)
    return f"<p><small>Rules: {escape(told)}</small></p>"
