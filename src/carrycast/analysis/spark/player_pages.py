"""The page beside a report that plays runs. It is made with the report if that is quick, else by `carrycast show`."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec

from carrycast.analysis.player import player_of_scenario
from carrycast.analysis.spark.experiment import Experiment, Point
from carrycast.analysis.spark.records import Record
from carrycast.errors import UserError, WorkError
from carrycast.sim.scenario import Scenario

PLAYERS = "players"
MAX_NODE_S = 2e6
"""Nodes times simulated seconds: 500 nodes for an hour. Larger runs are simulated again only on request."""
QUICK_CPU_S = 2.0
"""CPU time of both runs. Recording them in full takes two or three times as long."""
KEY_BYTES = 200


def player_file(experiment: str) -> str:
    """Return the path of an experiment's player page, relative to its report."""
    return f"{PLAYERS}/{experiment}.html"


def find_player(experiment: str, out: Path) -> str | None:
    """Return the path of an experiment's player page if the page exists."""
    file = player_file(experiment)
    return file if (out / file).is_file() else None


def choose_points(experiment: Experiment) -> list[Point]:
    """Choose the points to play side by side: the first point, and the first other one with the same movement and
    contacts, preferably with another protocol."""
    first, *others = experiment.points
    alike = [point for point in others if _scene(point.scenario) == _scene(first.scenario)]
    alike.sort(key=lambda point: point.scenario.protocol.get("name") == first.scenario.protocol.get("name"))
    return [first, *alike[:1]]


def render_player(experiment: Experiment, however_large: bool = False) -> str | None:
    """Return a page that plays the chosen points at the first seed; None if they are too large or a run fails."""
    points = choose_points(experiment)
    if not however_large and any(point.scenario.nodes * point.scenario.duration_s > MAX_NODE_S for point in points):
        return None
    try:
        return player_of_scenario({point.name: point.scenario for point in points}, experiment.seeds[0])
    except (UserError, WorkError):
        if however_large:
            raise
        # The report lists all failed runs.
        return None


def make_players(
    experiments: Sequence[Experiment], records: Sequence[Record], out: Path, at_once: bool = False
) -> None:
    """Write a page for each experiment beside the report. If its runs take long, the page says how to make the
    player."""
    for experiment in experiments:
        file = out / player_file(experiment.name)
        runs = _select_runs(experiment, records)
        key = _key(runs)
        if file.is_file() and file.read_bytes()[-KEY_BYTES:].decode(errors="replace").endswith(key):
            continue
        file.unlink(missing_ok=True)
        if len(runs) < len(choose_points(experiment)) or any(run["error"] is not None for run in runs):
            continue
        cpu_s = sum(float(str(run["cpu_s"])) for run in runs)
        text = render_player(experiment) if at_once or cpu_s <= QUICK_CPU_S else None
        _write(file, _placeholder_page(experiment, out, cpu_s) if text is None else text + key)


def make_player(experiment: Experiment, records: Sequence[Record], out: Path) -> Path:
    """Write the player page of one experiment, however long it takes."""
    text = render_player(experiment, however_large=True)
    assert text is not None, "however_large never returns None"
    file = out / player_file(experiment.name)
    _write(file, text + _key(_select_runs(experiment, records)))
    return file


def _scene(scenario: Scenario) -> bytes:
    """Return the settings that determine positions and contacts, encoded for comparison."""
    alike = (scenario.nodes, scenario.duration_s, scenario.area_m, scenario.mobility, scenario.contacts, scenario.radio)
    return msgspec.msgpack.encode((alike, scenario.wires, scenario.faults, scenario.roles), order="deterministic")


def _select_runs(experiment: Experiment, records: Sequence[Record]) -> list[Record]:
    names = [point.name for point in choose_points(experiment)]
    mine = (record for record in records if record["experiment"] == experiment.name)
    return [record for record in mine if record["point"] in names and record["seed"] == experiment.seeds[0]]


def _key(runs: Sequence[Record]) -> str:
    """Return the keys of a page's runs as a comment for its end, by which an up-to-date page is recognized."""
    return f"<!-- {' '.join(str(run['key']) for run in runs)} -->\n"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.parent / f".{file.name}.tmp"
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)


def _placeholder_page(experiment: Experiment, out: Path, cpu_s: float) -> str:
    """Return a page that says how to make the player."""
    title, name = escape(experiment.definition.title or experiment.name), escape(experiment.name)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title} · carrycast</title>\n<style>:root {{ color-scheme: light dark; }} body {{ max-width: 40em; "
        "margin: 3em auto; padding: 0 1em; font: 16px/1.5 system-ui, sans-serif; } pre { overflow: auto; padding: 1em; "
        "border: 1px solid #8885; border-radius: 8px; }</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<p>The runs that can be watched here take about {max(3 * cpu_s, 1):.0f} s to be simulated "
        f"again, so this page is made when you want it:</p>\n<pre>carrycast show {escape(str(out))} --experiment {name}"
        "</pre>\n<p>Then load it again.</p>\n</body>\n</html>\n"
    )
