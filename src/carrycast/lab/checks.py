"""Checks which scenarios live nodes can play, before anything is started."""

from collections.abc import Iterator

from carrycast.errors import UserError
from carrycast.sim.radio import DiskRadio
from carrycast.sim.scenario import CutOff, LinkCut, LinkCuts, OracleDiscovery, Scenario

PLAYED_FAULTS = (LinkCut, LinkCuts, CutOff)
"""The faults that are played to live nodes."""


def check_playable(scenario: Scenario) -> None:
    """Raise a UserError that names the first setting of a scenario that live nodes cannot play."""
    for key, why in _find_refused_settings(scenario):
        raise UserError(f"{scenario.name}: {key}: {why}")


def _find_refused_settings(scenario: Scenario) -> Iterator[tuple[str, str]]:
    radio = scenario.radio_model()
    if not isinstance(radio, DiskRadio):
        yield "radio.model", "links between live nodes are ideal and carry no collisions; say disk, or simulate it"
    elif not scenario.has_no_radio:
        yield from _find_radio_limits("radio", radio)
    for place, wire in enumerate(scenario.wires):
        yield from _find_radio_limits(f"wires.{place}", wire.radio())
    if isinstance(scenario.discovery, OracleDiscovery):
        yield "discovery.mode", "nobody tells live nodes of their links; say beacon, or none if the router finds them"
    for place, fault in enumerate(scenario.faults):
        if not isinstance(fault, PLAYED_FAULTS):
            kind = fault.__struct_config__.tag
            yield f"faults.{place}", f"{kind} is not played to live nodes; link_cut, link_cuts and cut_off are"
    for place, request in enumerate(scenario.request):
        if request.attributes:
            yield f"request.{place}.attributes", "a live node asks without attributes; leave them out"
    absent = {
        "applications": (bool(scenario.applications), "are not played to live nodes; leave them out"),
        "command": (bool(scenario.command), "is not played to live nodes; leave it out"),
        "service": (scenario.service is not None, "a live node takes the time that it takes; leave it out"),
        "energy": (scenario.energy is not None, "a live node does not know its energy; leave it out"),
        "computer.memory_bytes": (
            scenario.computer.memory_bytes is not None,
            "live nodes have the memory of the machine; leave it out",
        ),
    }
    for key, (given, why) in absent.items():
        if given:
            yield key, why


def _find_radio_limits(where: str, radio: DiskRadio) -> Iterator[tuple[str, str]]:
    if radio.rate_bps is not None:
        yield f"{where}.rate_bps", "links between live nodes have a delay and no rate; leave it out"
    if radio.loss > 0:
        yield f"{where}.loss", "links between live nodes lose nothing while they are up; leave it out"
