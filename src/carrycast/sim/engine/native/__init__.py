"""The native engine: the core in C++ (`cpp`), and the Python classes that set it up and do what happens rarely.

The core has the event queue, media, topologies, ports, timers, the dispatch of handlers, the built-in folds and
checkers, and the fingerprint. Its results are those of the Python engine to the last bit, which is the specification.
"""

from carrycast.sim.engine.native.coverage import find_uncovered
from carrycast.sim.engine.native.extension import as_kernel, make_core
from carrycast.sim.engine.native.network import NativeNetwork
from carrycast.sim.engine.native.recorder import NativeRecorder

__all__ = ["NativeNetwork", "NativeRecorder", "as_kernel", "find_uncovered", "make_core"]
