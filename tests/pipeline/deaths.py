"""Stand-ins for the simulator that misbehave; workers import them by name."""

import os
import signal
import time
from pathlib import Path

from carrycast.sim.engine.simulation import RunResult, run
from carrycast.sim.scenario.scenario import Scenario
from carrycast.trace import Level


class DyingOnce:
    """Kills its worker at the first run with a seed, as a crash of native code would."""

    def __init__(self, seed: int, memory: Path) -> None:
        self.seed = seed
        self.memory = memory

    def __call__(self, scenario: Scenario, seed: int, trace: Level, trace_directory: Path | None) -> RunResult:
        marker = self.memory / f"died-{scenario.protocol['name']}"
        if seed == self.seed and not marker.exists():
            marker.touch()
            os._exit(17)
        return run(scenario, seed, trace, trace_directory)


class DyingAlways:
    """Is killed from outside whenever it meets a seed, as by a machine without memory."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, scenario: Scenario, seed: int, trace: Level, trace_directory: Path | None) -> RunResult:
        if seed == self.seed:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        return run(scenario, seed, trace, trace_directory)


class Counting:
    """Leaves a mark for every run that it really does, and refuses some seeds."""

    def __init__(self, memory: Path, refuse: tuple[int, ...] = ()) -> None:
        self.memory = memory
        self.refuse = refuse

    def __call__(self, scenario: Scenario, seed: int, trace: Level, trace_directory: Path | None) -> RunResult:
        if seed in self.refuse:
            raise ValueError(f"seed {seed}\nis refused")
        (self.memory / f"{scenario.name.replace('/', '-')}-{seed}-{time.monotonic_ns()}").touch()
        return run(scenario, seed, trace, trace_directory)
