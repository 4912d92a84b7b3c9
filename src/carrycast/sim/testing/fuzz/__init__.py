"""Random scenarios: drawn from the declared types of all settings, run twice, compared, and shrunk where they fail.

`python -m carrycast.sim.testing.fuzz --count 10000 --seed 1 --workers 2 --resume build/fuzz.jsonl`
"""

from carrycast.sim.testing.fuzz.case import Case, load_case
from carrycast.sim.testing.fuzz.pool import Lane, Verdict
from carrycast.sim.testing.fuzz.scenarios import draw_case
from carrycast.sim.testing.fuzz.shrink import shrunk

__all__ = ["Case", "Lane", "Verdict", "draw_case", "load_case", "shrunk"]
