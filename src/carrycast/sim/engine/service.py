"""Messages wait for the node that is to look at them: one server and one queue at each node."""

from collections import deque
from collections.abc import Callable

from carrycast.core.model import NodeId
from carrycast.sim.engine.kernel import Kernel, microseconds
from carrycast.sim.radio.medium import Frame
from carrycast.sim.scenario.resources import Service

Served = Callable[[Frame, NodeId], None]


class ServiceQueues:
    """Of each node, what waits, in the order in which it came. What a crash finds in a queue is lost with it."""

    def __init__(self, service: Service, nodes: int, kernel: Kernel, served: Served, refused: Served) -> None:
        self._time_us = microseconds(service.time_s)
        self._length = service.queue
        self._kernel = kernel
        self._served = served
        self._refused = refused
        self._waiting: list[deque[Frame]] = [deque() for _ in range(nodes)]

    def take(self, frame: Frame, node: NodeId) -> None:
        """A message has arrived at a node."""
        waiting = self._waiting[node]
        # The one that is being looked at stands in front.
        if len(waiting) > self._length:
            self._refused(frame, node)
            return
        waiting.append(frame)
        if len(waiting) == 1:
            self._kernel.at(self._kernel.now_us + self._time_us, self._done, (node, frame))

    def crash(self, node: NodeId) -> None:
        """What waits is gone."""
        self._waiting[node] = deque()

    def _done(self, what: object) -> None:
        assert isinstance(what, tuple)
        node, frame = what
        waiting = self._waiting[node]
        if not waiting or waiting[0] is not frame:
            # The node has crashed since.
            return
        waiting.popleft()
        if waiting:
            self._kernel.at(self._kernel.now_us + self._time_us, self._done, (node, waiting[0]))
        self._served(frame, node)
