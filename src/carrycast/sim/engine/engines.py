"""The two engines: `python`, the specification, and `native`, whose hot parts are in C++. Their results are equal."""

from collections.abc import Callable
from typing import NamedTuple

from carrycast.core.protocol import StackPlan
from carrycast.errors import UserError
from carrycast.native import has_native_core
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.engine.network import Network
from carrycast.sim.engine.observers.recorder import Recorder
from carrycast.sim.scenario import Scenario

PYTHON, NATIVE, AUTO = "python", "native", "auto"
ENGINES = (AUTO, PYTHON, NATIVE)


class EngineParts(NamedTuple):
    """The classes and the kernel of a run."""

    kernel: Kernel
    recorder: type[Recorder]
    network: type[Network]
    close: Callable[[], None]
    """Releases what the kernel holds."""


def select_engine(asked: str, scenario: Scenario) -> str:
    """The engine of a run: `python` or `native`. With `auto`, native if it is installed and covers the whole run."""
    if asked == PYTHON:
        return PYTHON
    if asked not in ENGINES:
        raise UserError(f"engine: {asked!r} is not an engine; they are {', '.join(ENGINES)}")
    if not has_native_core():
        if asked == AUTO:
            return PYTHON
        raise UserError(
            "engine: this installation of carrycast is pure Python; install it where there is a C++ compiler, "
            "or use --engine python"
        )
    from carrycast.sim.engine.native import find_uncovered

    uncovered = find_uncovered(scenario)
    if asked == NATIVE and uncovered:
        raise UserError(
            f"{scenario.name}: the native engine does not cover {' and '.join(uncovered)}; use --engine python or auto"
        )
    return PYTHON if uncovered else NATIVE


def make_parts(engine: str, scenario: Scenario, stack: StackPlan) -> EngineParts:
    """The parts of a run with one of the two engines."""
    if engine == PYTHON:
        return EngineParts(Kernel(), Recorder, Network, _do_nothing)
    from carrycast.sim.engine import native

    core = native.make_core(scenario, stack)
    return EngineParts(native.as_kernel(core), native.NativeRecorder, native.NativeNetwork, core.close)


def _do_nothing() -> None:
    """The Python engine holds nothing that Python does not release."""
