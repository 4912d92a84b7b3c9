"""Stop a simulation at a node and time: the debugger opens in the first handler that the node enters from then on.

Python's trace function detects the handler, so runs without the debugger are not slowed down.
"""

import pdb
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from carrycast.core.model import NodeId
from carrycast.core.protocol import StateMachine
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import RunResult, Simulation
from carrycast.sim.scenario import Scenario

Stop = Callable[[FrameType], None]


def debug_run(scenario: Scenario, seed: int, node: NodeId, time_s: float, stop: Stop | None = None) -> RunResult:
    """Simulate, and call `stop` with the frame of the first handler that the node enters at that time or later.

    Without `stop` the debugger opens there; `continue` runs the rest.
    """
    if not 0 <= node < scenario.nodes:
        raise UserError(f"there is no node {node}; they are 0 to {scenario.nodes - 1}")
    if not 0 <= time_s <= scenario.duration_s:
        raise UserError(f"{time_s:g} s is not within the run, which lasts {scenario.duration_s:g} s")
    simulation = Simulation(scenario, seed)
    if time_s > 0:
        simulation.start()
        simulation.advance(time_s)
    earlier = sys.gettrace()
    sys.settrace(_watch_for_handler(node, stop or pdb.Pdb().set_trace))
    try:
        if time_s == 0:
            simulation.start()
        simulation.advance(scenario.duration_s)
        return simulation.finish()
    finally:
        sys.settrace(earlier)


def _watch_for_handler(node: NodeId, stop: Stop) -> Callable[[FrameType, str, Any], None]:
    """A trace function that ends itself and calls `stop` when a state machine of the node enters a handler."""

    def watch(frame: FrameType, kind: str, argument: Any) -> None:
        if kind == "call" and frame.f_code.co_name.startswith("on_"):
            machine = frame.f_locals.get("self")
            if isinstance(machine, StateMachine) and machine.node == node:
                sys.settrace(None)
                stop(frame)

    return watch
