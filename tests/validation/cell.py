"""A small world for a radio: standing nodes, a kernel, and a witness of everything that happens."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from carrycast.core.model import Failure, NodeId
from carrycast.core.wire import Layer, Message
from carrycast.sim.contacts.exact import compute_contacts
from carrycast.sim.engine.kernel import US_PER_S, Kernel
from carrycast.sim.mobility.trajectory import Trajectories
from carrycast.sim.radio.dot11 import UNLIMITED, CsmaRadio
from carrycast.sim.radio.medium import Frame, MediumUpcalls, Reach
from carrycast.sim.radio.radio import Radio, RadioContext

Point = tuple[float, float]


class Blank(Message, frozen=True, tag=1):
    """Says nothing; only its size matters."""


class Dice(Random):
    """Draws backoffs as told: so many slots of the smallest window, one after the other."""

    def __init__(self, *slots: int, window: int = 31) -> None:
        super().__init__(0)
        self._fractions = [(slot + 0.5) / (window + 1) for slot in slots]

    def random(self) -> float:
        return self._fractions.pop(0)


class Cell(MediumUpcalls):
    """Nodes at fixed places and one interface, and a record of all that the medium told."""

    def __init__(self, radio: Radio, places: list[Point], seed: int = 1, rng: Random | None = None) -> None:
        self.kernel = Kernel()
        rng = Random(seed) if rng is None else rng
        there = Trajectories.standing(np.array([x for x, _ in places]), np.array([y for _, y in places]), 1.0)
        context = RadioContext(
            "radio",
            len(places),
            1.0,
            self.kernel,
            self,
            rng,
            lambda nodes: [places[node] for node in nodes],
            lambda range_m: compute_contacts(there, range_m, 1.0),
            lambda time_s: np.array(places, dtype=np.float64),
        )
        self.medium = radio.medium(context)
        links = compute_contacts(there, radio.range_m, 1.0)
        for a, b in zip(links.a.tolist(), links.b.tolist(), strict=True):
            self.medium.topology.set_contact(a, b, up=True)
        self.heard: list[tuple[int, Frame, tuple[NodeId, ...]]] = []
        self.losses: list[tuple[int, NodeId, str]] = []
        self.outcomes: list[tuple[int, int, Failure | None]] = []
        self.bystanders: list[tuple[NodeId, ...]] = []
        self.after_received: Callable[[Frame, Reach], None] | None = None
        self.after_outcome: Callable[[Frame, Failure | None], None] | None = None
        self._tokens = 0

    def send(self, sender: NodeId, target: NodeId | None, size_bytes: int) -> int:
        """Hand the medium a frame; its token."""
        self._tokens += 1
        token = None if target is None else self._tokens
        frame = Frame(sender, target, Layer.DISSEMINATION, Blank(), bytes(size_bytes), token, self.kernel.now_us)
        self.medium.transmit(frame)
        return self._tokens

    def send_at(self, time_us: int, sender: NodeId, target: NodeId | None, size_bytes: int) -> None:
        """The same later."""
        self.kernel.at(time_us, lambda _: void(self.send(sender, target, size_bytes)), None)

    def run(self, until_s: float) -> None:
        """Let time pass."""
        self.kernel.run(round(until_s * US_PER_S))

    def on_overheard(self, frame: Frame, nodes: Sequence[NodeId]) -> None:
        self.bystanders.append(tuple(sorted(nodes)))

    def on_received(self, frame: Frame, reach: Reach) -> None:
        self.heard.append((self.kernel.now_us, frame, reach.nodes))
        if self.after_received is not None:
            self.after_received(frame, reach)

    def on_outcome(self, frame: Frame, failure: Failure | None) -> None:
        assert frame.token is not None
        self.outcomes.append((self.kernel.now_us, frame.token, failure))
        if self.after_outcome is not None:
            self.after_outcome(frame, failure)

    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        self.losses.append((self.kernel.now_us, node, reason))


def void(_: object) -> None:
    """Forget a result."""


def close_together(stations: int) -> list[Point]:
    """So many places that everybody hears everybody: on a line of 10 m."""
    return [(10.0 * place / max(stations - 1, 1), 0.0) for place in range(stations)]


class Saturated(Cell):
    """Stations that always have two frames for the next node, so that none is ever without."""

    def __init__(
        self,
        radio: Radio,
        senders: dict[NodeId, NodeId | None],
        places: list[Point],
        size_bytes: int,
        seed: int = 1,
    ) -> None:
        super().__init__(radio, places, seed)
        self.size_bytes = size_bytes
        self.delivered = [0] * len(places)
        """Frames of each sender that arrived."""
        self.sent = 0
        """Frames that were done with, heard or not."""
        self.after_received = self._count
        self.after_outcome = self._refill
        for sender, target in senders.items():
            for _ in range(2):
                self.send(sender, target, size_bytes)

    def _count(self, frame: Frame, reach: Reach) -> None:
        self.heard.clear()
        self.sent += 1
        self.delivered[frame.sender] += len(reach.nodes)
        if frame.target is None:
            self.send(frame.sender, None, self.size_bytes)

    def _refill(self, frame: Frame, failure: Failure | None) -> None:
        self.outcomes.clear()
        self.losses.clear()
        self.send(frame.sender, frame.target, self.size_bytes)

    def megabits_per_s(self, duration_s: float, warm_up_s: float = 0.2) -> float:
        """What all senders together carry, after a while."""
        self.run(warm_up_s)
        before = sum(self.delivered)
        self.run(warm_up_s + duration_s)
        return (sum(self.delivered) - before) * self.size_bytes * 8 / duration_s / 1e6


def saturated_cell(radio: Radio, stations: int, size_bytes: int, seed: int = 1) -> Saturated:
    """Stations that all hear each other and send to one more node, as Bianchi has them."""
    return Saturated(radio, dict.fromkeys(range(stations), stations), close_together(stations + 1), size_bytes, seed)


def under_the_models_conditions(radio: CsmaRadio) -> CsmaRadio:
    """Unlimited retries, no EIFS, failures known at once, and Bianchi's slot rule."""
    fields = {name: getattr(radio, name) for name in CsmaRadio.__struct_fields__}
    fields |= {"retry_limit": UNLIMITED, "long_retry_limit": UNLIMITED}
    fields |= {"eifs": False, "timeout_us": 0, "busy_slot_counts": True}
    return CsmaRadio(**fields)
