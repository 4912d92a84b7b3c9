"""Which runs the native engine covers."""

from carrycast.sim.radio import CsmaRadio, DiskRadio
from carrycast.sim.scenario import Scenario


def find_uncovered(scenario: Scenario) -> list[str]:
    """The parts of a scenario that the native engine does not cover."""
    radio = scenario.radio_model()
    covered = scenario.has_no_radio or type(radio) in {DiskRadio, CsmaRadio}
    found = [] if covered else [f"the radio {radio.name}"]
    if scenario.energy is not None and scenario.energy.enforced:
        found.append("energy that is enforced")
    return found
