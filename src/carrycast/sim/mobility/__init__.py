"""Movement of nodes: one module per movement model or file format. Independent of radios."""

from carrycast.sim.mobility.compression import BZIP2, GZIP, decompressed_file, detect_compression
from carrycast.sim.mobility.csv_table import COLUMNS, CsvTable
from carrycast.sim.mobility.fleet import FACTS_FILE, LEGS_FOLDER, VERSION, FleetFacts, FleetMovement, legs_between
from carrycast.sim.mobility.model import Area, MobilityModel, Recording, find_movement_model, movement_models
from carrycast.sim.mobility.movement_file import (
    MAX_LINES,
    MovementFormat,
    RecordedMovement,
    TraceFile,
    Waypoints,
    extract_waypoints,
)
from carrycast.sim.mobility.ns2 import Ns2
from carrycast.sim.mobility.one import One
from carrycast.sim.mobility.sumo import Sumo, read_fcd
from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories

__all__ = [
    "Area",
    "BZIP2",
    "COLUMNS",
    "CsvTable",
    "FACTS_FILE",
    "FleetFacts",
    "FleetMovement",
    "Floats",
    "GZIP",
    "Integers",
    "LEGS_FOLDER",
    "MAX_LINES",
    "MobilityModel",
    "MovementFormat",
    "Ns2",
    "One",
    "RecordedMovement",
    "Recording",
    "Sumo",
    "TraceFile",
    "Trajectories",
    "VERSION",
    "Waypoints",
    "decompressed_file",
    "detect_compression",
    "extract_waypoints",
    "find_movement_model",
    "legs_between",
    "movement_models",
    "read_fcd",
]
