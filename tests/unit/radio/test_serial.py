"""The radio `serial`: lines with a rate, a delay and a largest frame."""

from random import Random

from carrycast.core.model import Failure
from carrycast.core.protocol import Beacon
from carrycast.core.wire import Layer
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.radio.medium import Frame
from carrycast.sim.radio.serial import SerialMedium, SerialRadio
from tests.unit.radio.test_disk import Witness


class Star:
    """Node 0 with a line to each of three others."""

    def __init__(self, settings: SerialRadio) -> None:
        self.kernel = Kernel()
        self.witness = Witness(self.kernel)
        self.medium = SerialMedium(settings, "radio", 4, self.kernel, self.witness)
        for node in range(1, 4):
            self.medium.topology.set_contact(0, node, up=True)
        self.rng = Random(1)

    def send(self, target: int | None, size_bytes: int, token: int | None = None, sender: int = 0) -> None:
        self.medium.transmit(Frame(sender, target, Layer.DISCOVERY, Beacon(1.0), bytes(size_bytes), token, 0))

    def run(self) -> Witness:
        self.kernel.run(100_000_000)
        return self.witness


# 1 ms for 125 bytes.
LINE = SerialRadio(rate_bps=1e6, delay_s=0.01, frame_bytes=100, overhead_bytes=0)


def test_a_line_sends_one_frame_at_a_time_and_each_arrives_after_the_delay() -> None:
    star = Star(LINE)
    star.send(1, 125, token=1)
    star.send(1, 125, token=2)
    star.send(2, 125, token=3)
    star.send(0, 125, token=4, sender=1)
    heard = star.run().heard
    # Other lines, and the other direction of a line, do not wait.
    assert heard == [(11_000, (1,)), (11_000, (2,)), (11_000, (0,)), (12_000, (1,))]
    assert [failure for _, _, failure in star.witness.outcomes] == [None] * 4


def test_a_broadcast_is_sent_over_every_line() -> None:
    star = Star(LINE)
    star.send(1, 125)
    star.send(None, 125)
    assert star.run().heard == [(11_000, (1,)), (11_000, (2,)), (11_000, (3,)), (12_000, (1,))]


def test_a_long_message_takes_several_frames_with_headers() -> None:
    star = Star(SerialRadio(rate_bps=1e6, frame_bytes=100, overhead_bytes=10))
    # 90 + 90 + 20 bytes and three headers are 230 bytes.
    star.send(1, 200)
    assert star.run().heard == [(1840, (1,))]


def test_a_broken_line_fails_what_waits_for_it() -> None:
    star = Star(SerialRadio(rate_bps=1e6))
    for token in range(1, 4):
        star.send(1, 125, token=token)
    star.kernel.at(500, lambda _: star.medium.topology.set_contact(0, 1, up=False), None)
    witness = star.run()
    # The second frame was on the line when the first one failed; the third had not begun.
    assert [(token, failure) for _, token, failure in witness.outcomes] == [
        (1, Failure.UNREACHABLE),
        (3, Failure.UNREACHABLE),
        (2, Failure.UNREACHABLE),
    ]


def test_a_full_queue_and_a_crash_are_named() -> None:
    star = Star(SerialRadio(rate_bps=1e6, queue=1))
    for token in range(1, 4):
        star.send(1, 125, token=token)
    star.kernel.at(500, lambda _: star.medium.topology.set_node(0, up=False), None)
    assert [reason for _, _, reason in star.run().drops] == ["queue_full", "sender_down", "sender_down"]
    assert not star.witness.heard
