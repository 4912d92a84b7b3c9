"""The disk radio, alone with a kernel and an air that writes down what it is told."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Beacon
from carrycast.core.wire import Layer
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.radio.disk import DiskMedium
from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.radio.medium import Frame, MediumUpcalls, Reach


class Witness(MediumUpcalls):
    """Writes everything down with its time."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.heard: list[tuple[int, tuple[NodeId, ...]]] = []
        self.outcomes: list[tuple[int, int | None, Failure | None]] = []
        self.drops: list[tuple[int, NodeId, str]] = []
        self.attempts: list[int] = []
        self.bystanders: list[tuple[NodeId, ...]] = []

    def on_received(self, frame: Frame, reach: Reach) -> None:
        self.heard.append((self.kernel.now_us, reach.nodes))
        self.attempts.append(frame.attempts)

    def on_outcome(self, frame: Frame, failure: Failure | None) -> None:
        self.outcomes.append((self.kernel.now_us, frame.token, failure))

    def on_overheard(self, frame: Frame, nodes: Sequence[NodeId]) -> None:
        self.bystanders.append(tuple(nodes))

    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        self.drops.append((self.kernel.now_us, node, reason))


class Bench:
    """Node 0 in the middle of a star."""

    def __init__(self, settings: DiskRadio, nodes: int = 4) -> None:
        self.kernel = Kernel()
        self.witness = Witness(self.kernel)
        self.medium = DiskMedium(settings, "radio", nodes, self.kernel, self.witness, Random(1))
        for node in range(1, nodes):
            self.medium.topology.set_contact(0, node, up=True)

    def transmit(self, target: NodeId | None = None, size_bytes: int = 125, token: int | None = None) -> None:
        frame = Frame(0, target, Layer.DISCOVERY, Beacon(1.0), bytes(size_bytes), token, self.kernel.now_us)
        self.medium.transmit(frame)

    def run(self, seconds: float = 100.0) -> Witness:
        self.kernel.run(self.kernel.now_us + round(seconds * 1e6))
        return self.witness


def test_without_a_rate_a_frame_takes_the_delay_and_nothing_else() -> None:
    bench = Bench(DiskRadio(delay_s=0.002))
    bench.transmit(size_bytes=10)
    bench.transmit(size_bytes=100_000)
    assert bench.run().heard == [(2000, (1, 2, 3)), (2000, (1, 2, 3))]


def test_one_transmission_is_one_entry_of_the_queue_however_many_hear_it() -> None:
    bench = Bench(DiskRadio(), nodes=100)
    bench.transmit()
    assert len(bench.kernel) == 1


def test_with_a_rate_frames_take_their_airtime_one_after_the_other() -> None:
    bench = Bench(DiskRadio(delay_s=0.001, rate_bps=1e6))
    bench.transmit(size_bytes=125)  # 1 ms on the air
    bench.transmit(size_bytes=250)  # 2 ms, after the first
    assert [time_us for time_us, _ in bench.run().heard] == [2000, 4000]


def test_a_transmitter_that_has_worked_off_its_queue_starts_at_once() -> None:
    bench = Bench(DiskRadio(delay_s=0.0, rate_bps=1e6))
    bench.transmit()
    bench.run(1.0)
    bench.transmit()
    assert [time_us for time_us, _ in bench.run().heard] == [1000, 1_001_000]


def test_two_nodes_do_not_wait_for_each_other() -> None:
    bench = Bench(DiskRadio(delay_s=0.0, rate_bps=1e6))
    bench.transmit()
    bench.medium.transmit(Frame(1, None, Layer.DISCOVERY, Beacon(1.0), bytes(125), None, 0))
    assert [time_us for time_us, _ in bench.run().heard] == [1000, 1000]


def test_a_full_queue_drops_with_a_reason_and_tells_the_token_later_never_at_once() -> None:
    bench = Bench(DiskRadio(rate_bps=1e6, queue=2))
    for token in range(5):
        bench.transmit(1, token=token)
    assert bench.witness.drops == [(0, 0, "queue_full"), (0, 0, "queue_full")]
    assert bench.witness.outcomes == []
    outcomes = bench.run().outcomes
    assert sorted((token, failure) for _, token, failure in outcomes) == [
        (0, None),
        (1, None),
        (2, None),
        (3, "queue_full"),
        (4, "queue_full"),
    ]
    assert len(bench.witness.heard) == 3, "one on the air and two that waited"


def test_a_queue_frees_a_place_when_its_first_frame_goes_on_the_air() -> None:
    bench = Bench(DiskRadio(rate_bps=1e6, queue=1))
    bench.transmit()
    bench.transmit()
    bench.run(0.0011)
    bench.transmit()
    assert bench.run().drops == []


def test_without_a_rate_nothing_waits_and_nothing_is_too_much() -> None:
    bench = Bench(DiskRadio(queue=1))
    for _ in range(100):
        bench.transmit()
    assert bench.run().drops == []


def test_who_hears_is_judged_when_the_frame_arrives() -> None:
    bench = Bench(DiskRadio(delay_s=1.0))
    bench.transmit()
    bench.run(0.5)
    bench.medium.topology.set_contact(0, 1, up=False)
    assert bench.run().heard == [(1_000_000, (2, 3))]


def test_a_unicast_is_heard_by_its_target_alone_and_its_outcome_told_once() -> None:
    bench = Bench(DiskRadio(delay_s=0.001))
    bench.transmit(2, token=7)
    bench.transmit(2)
    assert bench.run().heard == [(1000, (2,)), (1000, (2,))]
    assert bench.witness.outcomes == [(1000, 7, None)]


def test_a_target_out_of_reach_is_a_drop_and_an_outcome() -> None:
    bench = Bench(DiskRadio(delay_s=0.001))
    bench.medium.topology.set_node(2, up=False)
    bench.transmit(2, token=7)
    assert bench.run().outcomes == [(1000, 7, "unreachable")]
    assert bench.witness.drops == [(1000, 2, "out_of_reach")]
    assert bench.witness.heard == [(1000, ())], "it was on the air all the same"


@pytest.mark.parametrize("loss", [0.1, 0.5])
def test_each_receiver_misses_a_broadcast_on_its_own(loss: float) -> None:
    bench = Bench(DiskRadio(loss=loss), nodes=3)
    for _ in range(4000):
        bench.transmit()
    heard = Counter(node for _, nodes in bench.run().heard for node in nodes)
    both = sum(len(nodes) == 2 for _, nodes in bench.witness.heard)
    # Four standard deviations of a binomial of 4000.
    slack = 4 * (4000 * loss * (1 - loss)) ** 0.5
    assert abs(heard[1] - 4000 * (1 - loss)) < slack
    assert abs(heard[2] - 4000 * (1 - loss)) < slack
    assert abs(both - 4000 * (1 - loss) ** 2) < 1.5 * slack
    assert len(bench.witness.drops) == 8000 - heard[1] - heard[2]


def test_a_unicast_is_repeated_up_to_its_retries() -> None:
    bench = Bench(DiskRadio(loss=0.5, retries=3))
    for token in range(4000):
        bench.transmit(1, token=token)
    witness = bench.run()
    assert set(witness.attempts) == {1, 2, 3, 4}
    failed = [token for _, token, failure in witness.outcomes if failure]
    assert abs(len(failed) / 4000 - 0.5**4) < 0.016, "it fails if four attempts in a row do"
    assert abs(sum(witness.attempts) / 4000 - 1.875) < 0.07, "1 + 1/2 + 1/4 + 1/8"
    assert sorted(token for _, token, _ in witness.outcomes if token is not None) == list(range(4000))
    assert len(witness.drops) == len(failed)


def test_each_retry_takes_airtime() -> None:
    bench = Bench(DiskRadio(loss=0.9, retries=5, rate_bps=1e6, delay_s=0.0))
    bench.transmit(1)
    witness = bench.run()
    assert witness.attempts[0] > 1
    assert witness.heard[0][0] == 1000 * witness.attempts[0]


def test_a_radio_that_loses_nothing_draws_nothing() -> None:
    bench = Bench(DiskRadio(rate_bps=1e6))
    before = bench.medium._rng.getstate()
    bench.transmit()
    bench.transmit(1, token=1)
    bench.run()
    assert bench.medium._rng.getstate() == before


@pytest.mark.parametrize(
    ("settings", "cost_s"),
    [
        (DiskRadio(delay_s=0.001), 0.001),
        (DiskRadio(delay_s=0.001, rate_bps=4e6), 0.002),
        (DiskRadio(delay_s=0.001, rate_bps=4e6, loss=0.5), 0.004),
    ],
)
def test_the_cost_of_a_link_is_the_time_that_500_bytes_take(settings: DiskRadio, cost_s: float) -> None:
    assert Bench(settings).medium.cost_s() == pytest.approx(cost_s)
