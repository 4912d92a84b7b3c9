"""Radio models: which nodes receive a frame, when, and at what cost. They know nothing of protocols."""

from carrycast.sim.radio.disk import DiskMedium
from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.radio.dot11 import CsmaRadio
from carrycast.sim.radio.medium import Frame, Medium, MediumUpcalls, Reach, Scheduler, Topology, UnicastBatch
from carrycast.sim.radio.radio import DEFAULT_RADIO, Radio, RadioContext, radio_named, radio_names
from carrycast.sim.radio.signal_medium import SignalMedium
from carrycast.sim.radio.signal_settings import RadioOverride, SignalRadio

__all__ = [
    "CsmaRadio",
    "DEFAULT_RADIO",
    "DiskMedium",
    "DiskRadio",
    "Frame",
    "Medium",
    "MediumUpcalls",
    "Radio",
    "RadioContext",
    "RadioOverride",
    "Reach",
    "Scheduler",
    "SignalMedium",
    "SignalRadio",
    "Topology",
    "UnicastBatch",
    "radio_named",
    "radio_names",
]
