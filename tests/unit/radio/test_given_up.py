"""A neighbor that cannot be reached: what waits for it fails with the frame that was tried, as on live nodes."""

from carrycast.core.model import Failure
from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.radio.dot11 import CsmaRadio
from carrycast.sim.radio.medium import Frame
from tests.unit.radio.test_disk import Bench
from tests.validation.cell import Cell, Point

# Node 1 is out of reach, node 2 is not.
PLACES: list[Point] = [(0, 0), (300, 0), (100, 0)]
# 125 bytes at 1 Mb/s take 1000 us.
SLOW = DiskRadio(rate_bps=1e6, delay_s=0.0005)


def test_csma_tries_one_frame_and_gives_up_all_for_the_same_neighbor() -> None:
    cell = Cell(CsmaRadio(retry_limit=3), PLACES)
    for target in (1, 2, 1, None, 1):
        cell.send(0, target, 512)
    cell.run(1)
    assert [(token, failure) for _, token, failure in cell.outcomes] == [
        (1, "unreachable"),
        (3, "unreachable"),
        (5, "unreachable"),
        (2, None),
    ]
    assert len({time_us for time_us, _, failure in cell.outcomes if failure}) == 1
    # The two that waited never were on the air; what was for others comes in its order.
    assert [(frame.target, frame.attempts) for _, frame, _ in cell.heard] == [(1, 3), (2, 1), (None, 1)]
    assert [(node, reason) for _, node, reason in cell.losses] == [
        (1, "out_of_reach"),
        (0, "unreachable"),
        (0, "unreachable"),
    ]


def test_csma_tries_again_what_is_sent_on_hearing_of_it() -> None:
    cell = Cell(CsmaRadio(retry_limit=2), PLACES)
    again: list[int] = []

    def resend(frame: Frame, failure: Failure | None) -> None:
        if len(again) < 2:
            again.append(cell.send(0, 1, 512))

    cell.after_outcome = resend
    cell.send(0, 1, 512)
    cell.send(0, 1, 512)
    cell.run(1)
    # Both were gone from the queue before the first was told, so what is sent then waits for a try of its own.
    assert [token for _, token, _ in cell.outcomes] == [1, 2, *again]
    assert [frame.attempts for _, frame, _ in cell.heard] == [2, 2]


def test_a_slow_disk_gives_up_what_waits_and_sends_the_rest_sooner() -> None:
    bench = Bench(SLOW)
    bench.medium.topology.set_node(2, up=False)
    for token, target in enumerate((2, 1, 2, None, 2, 3)):
        bench.transmit(target, token=token)
    bench.run(0.0016)
    # The first is known to have failed at 1500 us. The second is on the air since 1000 us, the others wait.
    assert bench.witness.outcomes == [(1500, token, "unreachable") for token in (0, 2, 4)]
    assert bench.witness.drops == [(1500, 2, "out_of_reach"), (1500, 0, "unreachable"), (1500, 0, "unreachable")]
    # 1000 us each: the broadcast at 2000 us, the last at 3000 us, and one more behind them.
    bench.transmit(1, token=9)
    bench.run()
    assert bench.witness.heard == [(1500, ()), (2500, (1,)), (3500, (1, 3)), (4500, (3,)), (5500, (1,))]
    assert bench.witness.outcomes[3:] == [(2500, 1, None), (4500, 5, None), (5500, 9, None)]


def test_a_slow_disk_keeps_what_it_has_put_on_the_air() -> None:
    bench = Bench(DiskRadio(rate_bps=1e6, delay_s=0.0015))
    bench.medium.topology.set_node(2, up=False)
    for token in range(4):
        bench.transmit(2, token=token)
    bench.run(0.0026)
    bench.medium.topology.set_node(2, up=True)
    # At 2500 us two more have gone out; they arrive or not on their own account.
    assert bench.run().outcomes == [
        (2500, 0, "unreachable"),
        (2500, 3, "unreachable"),
        (3500, 1, None),
        (4500, 2, None),
    ]


def test_a_queue_has_room_again_for_what_was_given_up() -> None:
    bench = Bench(DiskRadio(rate_bps=1e6, delay_s=0.0005, queue=3))
    bench.medium.topology.set_node(2, up=False)
    for token in range(4):
        bench.transmit(2, token=token)
    bench.run(0.0016)
    assert {failure for _, _, failure in bench.witness.outcomes} == {"unreachable"}
    for token in range(4, 7):
        bench.transmit(1, token=token)
    assert [failure for _, _, failure in bench.run().outcomes[4:]] == [None] * 3


def test_given_up_twice_what_is_left_comes_once() -> None:
    bench = Bench(SLOW, nodes=5)
    for node in (2, 3):
        bench.medium.topology.set_node(node, up=False)
    for token, target in enumerate((2, 3, 2, 3, 2, 1, 4)):
        bench.transmit(target, token=token)
    bench.run()
    # To 2 at 1500 us; to 3, on the air since 1000 us, at 2500 us, when the second to 3 has been sent since 2000 us.
    assert bench.witness.outcomes == [
        *[(1500, token, "unreachable") for token in (0, 2, 4)],
        (2500, 1, "unreachable"),
        (3500, 3, "unreachable"),
        (4500, 5, None),
        (5500, 6, None),
    ]
