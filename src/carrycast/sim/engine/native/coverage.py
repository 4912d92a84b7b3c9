"""Which runs the native engine covers."""

from carrycast.sim.radio import CsmaRadio, DiskRadio
from carrycast.sim.scenario import Scenario


def find_uncovered(scenario: Scenario) -> list[str]:
    """The parts of a scenario that the native engine does not cover."""
    radio = scenario.radio_model()
    return [] if scenario.has_no_radio or type(radio) in {DiskRadio, CsmaRadio} else [f"the radio {radio.name}"]
