"""Movement models by name: the value of `[mobility] model` in a scenario."""

from carrycast.core.plugins import find_plugin, plugin_names, unknown_plugin
from carrycast.sim.mobility.model import MobilityModel

MODELS = {
    "community": "carrycast.sim.mobility.community:Community",
    "csv": "carrycast.sim.mobility.csv_table:CsvTable",
    "excerpt": "carrycast.sim.mobility.excerpt:Excerpt",
    "fleet": "carrycast.sim.mobility.fleet:FleetMovement",
    "freeway": "carrycast.sim.mobility.freeway:Freeway",
    "given": "carrycast.sim.mobility.given:Given",
    "grid": "carrycast.sim.mobility.grid:Grid",
    "line": "carrycast.sim.mobility.line:Line",
    "manhattan": "carrycast.sim.mobility.manhattan:Manhattan",
    "mixed": "carrycast.sim.mobility.mixed:Mixed",
    "random_static": "carrycast.sim.mobility.random_static:RandomStatic",
    "random_waypoint": "carrycast.sim.mobility.random_waypoint:RandomWaypoint",
}
"""The built-in movement models."""

FILE_FORMATS = {
    "bonnmotion": "carrycast.sim.mobility.bonnmotion:BonnMotion",
    "ns2": "carrycast.sim.mobility.ns2:Ns2",
    "one": "carrycast.sim.mobility.one:One",
    "sumo": "carrycast.sim.mobility.sumo:Sumo",
}
"""The built-in formats of movement files. Each is a movement model as well: it plays such a file."""


def models() -> dict[str, type[MobilityModel]]:
    """All movement models, by name: those that compute a movement, and those that play a file."""
    formats = {name: find_plugin("file_formats", name) for name in plugin_names("file_formats")}
    played = {name: kind for name, kind in formats.items() if issubclass(kind, MobilityModel)}
    made = {name: find_plugin("movement_models", name) for name in plugin_names("movement_models")}
    return dict(sorted({**played, **made}.items()))


def lookup(name: str) -> type[MobilityModel]:
    """The model of a name; a UserError names those there are."""
    if name in MODELS:
        return find_plugin("movement_models", name)
    if name in FILE_FORMATS:
        return find_plugin("file_formats", name)
    if name in plugin_names("movement_models"):
        return find_plugin("movement_models", name)
    known = models()
    if name not in known:
        raise unknown_plugin("movement model", name, list(known))
    return known[name]
