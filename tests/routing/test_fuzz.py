"""Whatever valid messages come, in whatever order: a router raises nothing, keeps its bounds and leaves no timer."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from carrycast.core.model import Failure, NodeId, Position
from carrycast.core.protocol import Link, Place, RecordingPort, Router, TimerKey
from carrycast.core.protocol.effects import CancelTimer, Send, SetTimer
from carrycast.core.protocol.registry import find_router
from carrycast.core.wire import Parcel, Traffic
from carrycast.routers.gpsr.tests.bench import PlacedHost
from carrycast.sim.engine.simulation import Simulation
from carrycast.sim.testing import isolate_router
from tests.conformance.memory import size
from tests.conformance.strategies import messages
from tests.routing.test_worlds import mobile

SMALL: dict[str, dict[str, object]] = {
    "aodv": {"max_routes": 6, "max_requests": 8, "buffer": 3, "detection": "hello"},
    "gpsr": {"max_neighbors": 5, "dead_reckoning": True, "max_range_m": 1e9},
    "olsr": {"max_links": 6, "max_duplicates": 8, "detection": "link_layer", "tc_redundancy": 1},
    "geobroadcast": {"max_waiting": 3},
    "dsdv": {"max_routes": 6, "buffer": 3},
}
few_nodes = st.integers(0, 7)


class Driver:
    """Feeds a router and keeps track of its timers and sends."""

    def __init__(self, router: Router, port: RecordingPort) -> None:
        self.router = router
        self._port = port
        self.armed: dict[TimerKey, None] = {}
        self.tokens: list[int] = []
        self.now = 0.0
        self.settle()

    def settle(self) -> None:
        for effect in self._port.take():
            match effect:
                case SetTimer(key=key):
                    self.armed[key] = None
                case CancelTimer(key=key):
                    self.armed.pop(key, None)
                case Send(token=int(token)):
                    self.tokens.append(token)

    def step(self, rng: Random) -> None:
        """Something that the world may do."""
        self.now += rng.choice([0.0, 0.001, 0.5, 20.0])
        choice = rng.randrange(4)
        if choice == 0 and self.armed:
            key = rng.choice(list(self.armed))
            del self.armed[key]
            self.router.on_timer(self.now, key)
        elif choice == 1 and self.tokens:
            token = self.tokens.pop(rng.randrange(len(self.tokens)))
            self.router.on_sent(self.now, token, rng.choice([None, Failure.UNREACHABLE, Failure.QUEUE_FULL]))
        elif choice == 2:
            link = Link(rng.randrange(1, 8), "radio", 0.001)
            self.router.on_link_up(self.now, link)
            self.settle()
            self.router.on_link_down(self.now, link, Failure.SILENT)
        else:
            place = Place(Position(rng.uniform(-99, 99), 0.0), rng.choice([0.0, 50.0]), rng.choice([None, 3]))
            targets: list[NodeId | Place] = [2, 5, place]
            if rng.random() < 0.5:
                self.router.on_route(self.now, rng.choice(targets), Parcel(b"", Traffic.CONTROL))
            else:
                self.router.on_route_each(self.now, targets, Parcel(b"", Traffic.CONTROL))
        self.settle()


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_messages_in_any_order_do_no_harm(name: str, data: st.DataObject) -> None:
    router, port, _ = isolate_router(name, 0, PlacedHost(), 1, **SMALL[name])
    driver = Driver(router, port)
    rng = Random(data.draw(st.integers(0, 2**32)))
    kinds = st.sampled_from(find_router(name).messages)
    for _ in range(data.draw(st.integers(1, 40))):
        message = data.draw(kinds.flatmap(messages))
        router.on_message(driver.now, data.draw(few_nodes.filter(bool)), message, "radio")
        driver.settle()
        driver.step(rng)
    router.on_stop(driver.now)
    driver.settle()
    assert not driver.armed


@pytest.mark.parametrize("router", ["aodv", "aodv hello", "gpsr", "olsr", "dsdv"])
def test_what_a_router_keeps_does_not_grow_with_time(router: str) -> None:
    simulation = Simulation(mobile(router, "disk", duration_s=160.0), 1)
    simulation.start()

    def kept() -> int:
        # Not what it tells upward: above it is the protocol, which keeps every letter.
        parts = [vars(node.stack.router) for node in simulation.network.nodes]
        return sum(size(part) for found in parts for name, part in found.items() if name != "up")

    simulation.advance(40)
    early = kept()
    simulation.advance(160)
    assert 0 < kept() <= 1.5 * early + 20
