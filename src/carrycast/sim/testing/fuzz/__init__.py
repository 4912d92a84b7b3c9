"""Fuzzing with random scenarios. Each is drawn from the declared types of all settings, run twice, and compared.

A failing scenario is shrunk.

`python -m carrycast.sim.testing.fuzz --count 10000 --seed 1 --workers 2 --resume build/fuzz.jsonl`
"""

from carrycast.sim.testing.fuzz.case import FuzzCase, load_case
from carrycast.sim.testing.fuzz.pool import FuzzVerdict, WorkerPair
from carrycast.sim.testing.fuzz.scenarios import draw_case
from carrycast.sim.testing.fuzz.shrink import shrink_case

__all__ = ["FuzzCase", "WorkerPair", "FuzzVerdict", "draw_case", "load_case", "shrink_case"]
