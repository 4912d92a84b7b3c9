"""A channel to a peer over what loses, doubles, delays and overtakes: in order, once, or given up with a cause."""

import enum
import heapq
from collections.abc import Hashable
from functools import partial
from random import Random
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.model import Event, EventId, Failure, NodeId
from carrycast.core.parts.channel import (
    MAX_PEERS,
    WINDOW,
    Channel,
    ChannelAck,
    ChannelLimits,
    ChannelPacket,
    ChannelTypes,
    ReorderBuffer,
)
from carrycast.core.parts.outbox import MessagePolicy, Undelivered
from carrycast.core.protocol import RecordingPort
from carrycast.core.protocol.effects import CancelTimer, Note, SetTimer
from carrycast.core.wire import Codec, DecodeError, EventMessage, Layer, Message, Parcel, Traffic, classify, decoder_of

LIMITS = ChannelLimits(timeout_s=1.0, retries=3, fragment_bytes=20, messages=4, waiting=1000)


class Word(Message, frozen=True, gc=False, tag=1):
    """One of a count; a later one with the same key supersedes it. Good for a while."""

    durations: ClassVar[tuple[str, ...]] = ("good_s",)

    number: int
    key: int
    good_s: float
    text: bytes


class Told(EventMessage, frozen=True, gc=False, tag=2):
    """An event."""


class Packet(ChannelPacket, frozen=True, gc=False, kw_only=True, tag=3):
    """A packet."""


class Ack(ChannelAck, frozen=True, gc=False, tag=4):
    """An acknowledgment."""


KINDS: tuple[type[Message], ...] = (Word, Told)
TYPES = ChannelTypes(Packet, Ack, decoder_of(KINDS))
CODEC = Codec(Layer.DISSEMINATION, "channel", (Packet, Ack))


class Words(MessagePolicy):
    def key(self, message: Message) -> Hashable:
        return message.key or None if isinstance(message, Word) else None


def word(number: int, key: int = 0, size: int = 0, good_s: float = 1e6) -> Word:
    return Word(number, key, good_s, b"x" * size)


class Node:
    """One end: what it was handed, what it was told."""

    def __init__(self, net: "Net", name: NodeId, incarnation: int) -> None:
        self.port = RecordingPort()
        self.channel = Channel(self.port, partial(net.carry, name), TYPES, incarnation, Words(), net.limits)
        self.received: list[Word] = []
        self.given_up: list[Undelivered] = []
        self.drops: list[tuple[str, NodeId | None]] = []
        self.armed: dict[Hashable, float] = {}
        self.most = 0


class Net:
    """Two nodes, and between them what may lose, double, delay and, for a while, break altogether."""

    def __init__(self, seed: int, loss: float, double: float, delay_s: float, limits: ChannelLimits = LIMITS) -> None:
        self.rng = Random(seed)
        self.loss, self.double, self.delay_s = loss, double, delay_s
        self.limits = limits
        self.cut = False
        self.now = 0.0
        self._heap: list[tuple[float, int, NodeId, NodeId, bytes]] = []
        self._count = 0
        self.nodes = {name: Node(self, name, 1) for name in (1, 2)}

    def restart(self, name: NodeId) -> Node:
        """A node crashes and is back with nothing; the one that was is returned."""
        old = self.nodes[name]
        self.nodes[name] = Node(self, name, 2)
        return old

    def carry(self, sender: NodeId, target: NodeId, message: Message) -> None:
        for _ in range(2 if self.rng.random() < self.double else 1):
            if not self.cut and self.rng.random() >= self.loss:
                self._count += 1
                arrives = self.now + self.delay_s * self.rng.random()
                heapq.heappush(self._heap, (arrives, self._count, target, sender, CODEC.encode(message)))

    def send(self, sender: NodeId, message: Message) -> bool:
        node = self.nodes[sender]
        taken = node.channel.send(self.now, 3 - sender, message)
        self._look(node)
        return taken

    def run(self, until: float) -> None:
        while True:
            timers = [(at, name, key) for name, node in self.nodes.items() for key, at in node.armed.items()]
            timer = min(timers, key=lambda one: (one[0], one[1]), default=None)
            if self._heap and (timer is None or self._heap[0][0] <= timer[0]):
                if self._heap[0][0] > until:
                    break
                self.now, _, name, sender, frame = heapq.heappop(self._heap)
                self._arrive(self.nodes[name], sender, CODEC.decode(frame))
            elif timer is not None and timer[0] <= until:
                self.now = timer[0]
                node = self.nodes[timer[1]]
                del node.armed[timer[2]]
                assert isinstance(timer[2], tuple)
                node.given_up += node.channel.on_timer(self.now, timer[2][1][0])
                self._look(node)
            else:
                break
        self.now = until

    def _arrive(self, node: Node, sender: NodeId, message: Message) -> None:
        if isinstance(message, Packet):
            for one in node.channel.on_packet(self.now, sender, message):
                assert isinstance(one, Word)
                node.received.append(one)
        else:
            assert isinstance(message, Ack)
            node.given_up += node.channel.on_ack(self.now, sender, message)
        self._look(node)

    def _look(self, node: Node) -> None:
        for effect in node.port.take():
            if isinstance(effect, SetTimer):
                node.armed[effect.key] = self.now + effect.delay_s
            elif isinstance(effect, CancelTimer):
                node.armed.pop(effect.key, None)
            elif isinstance(effect, Note):
                node.drops.append((effect.fact.reason, effect.fact.peer))
        node.most = max(node.most, len(node.channel) + len(node.channel._reorder_buffer))


def numbers(node: Node) -> list[int]:
    return [one.number for one in node.received]


def lost(node: Node) -> list[int]:
    return [one.message.number for one in node.given_up if isinstance(one.message, Word)]


# Whatever goes wrong.


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.4, 0.8]),
    double=st.sampled_from([0.0, 0.3]),
    delay_s=st.sampled_from([0.0, 0.01, 0.8, 3.0]),
    keys=st.sampled_from([0, 1, 3]),
    flaps=st.booleans(),
)
def test_every_message_arrives_once_and_in_order_or_is_given_up(
    seed: int, loss: float, double: float, delay_s: float, keys: int, flaps: bool
) -> None:
    net = Net(seed, loss, double, delay_s)
    rng = Random(seed + 1)
    sent: dict[NodeId, list[Word]] = {1: [], 2: []}
    for number in range(1, 61):
        sender = rng.choice((1, 2))
        made = word(number, rng.randrange(keys + 1), rng.choice((0, 5, 90)), rng.choice((1e6, 2.0)))
        assert net.send(sender, made)
        sent[sender].append(made)
        if flaps and rng.random() < 0.1:
            net.cut = not net.cut
        net.run(net.now + rng.choice((0.0, 0.05, 1.0)))
    net.cut = False
    net.run(net.now + 10_000)
    for sender, words in sent.items():
        arrived, given_up = numbers(net.nodes[3 - sender]), lost(net.nodes[sender])
        assert arrived == sorted(set(arrived)), "in order, and once"
        over = [one for node in net.nodes.values() for one in node.drops if one == ("lease_over", 3 - sender)]
        over += [one for one in net.nodes[3 - sender].drops if one == ("lease_over", sender)]
        superseded = {one.number for one in words for later in words if one.key and later.key == one.key}
        superseded -= {max((one.number for one in words if one.key == key), default=0) for key in range(1, keys + 1)}
        untold = {one.number for one in words} - set(arrived) - set(given_up) - superseded
        short = {one.number for one in words if one.good_s < 10}
        assert untold <= short, "what did not arrive was given up with a cause"
        assert len(untold) <= len(over), "or dropped by name when its lease was over"
        assert all(one.message.good_s > 0 for one in net.nodes[sender].given_up if isinstance(one.message, Word))
    for node in net.nodes.values():
        assert len(node.channel) == 0, "nothing stays behind"
        assert len(node.channel._reorder_buffer) <= WINDOW
        assert node.armed == {}
        assert all(one.cause is Failure.UNREACHABLE for one in node.given_up)


@pytest.mark.parametrize("seed", range(5))
def test_while_the_net_works_at_all_nothing_is_given_up(seed: int) -> None:
    net = Net(seed, loss=0.2, double=0.2, delay_s=0.3, limits=LIMITS._replace(retries=20))
    for number in range(200):
        net.send(1, word(number, size=number))
        net.run(net.now + 0.01)
    net.run(10_000)
    assert numbers(net.nodes[2]) == list(range(200))
    assert net.nodes[1].given_up == []


@pytest.mark.parametrize("seed", range(20))
def test_what_was_superseded_never_arrives_after_what_superseded_it(seed: int) -> None:
    net = Net(seed, loss=0.5, double=0.3, delay_s=3.0)
    for number in range(40):
        net.send(1, word(number, key=1 + number % 3))
        net.run(net.now + net.rng.choice((0.0, 0.5)))
    net.run(10_000)
    for key in range(3):
        arrived = [number for number in numbers(net.nodes[2]) if number % 3 == key]
        assert arrived == sorted(arrived)


def test_what_is_kept_is_bounded_though_nothing_arrives() -> None:
    limits = LIMITS._replace(waiting=10)
    net = Net(1, loss=1.0, double=0.0, delay_s=0.0, limits=limits)
    taken = [net.send(1, word(number)) for number in range(100)]
    assert sum(taken) == 10 + 4
    assert net.nodes[1].drops == [("outbox_full", 2)] * 86
    net.run(1000)
    assert lost(net.nodes[1]) == list(range(14))
    assert net.nodes[1].most == 14


def test_pieces_that_wait_are_bounded_though_their_first_never_comes() -> None:
    port = RecordingPort()
    inbox = ReorderBuffer(port, TYPES.read, 1)
    for number in range(1, 2000):
        assert inbox.take(0.0, 9, packet(number, first=0)) == []
    assert len(inbox) == WINDOW - 1
    for peer in range(5000):
        inbox.take(0.0, peer, packet(1, first=0, body=b"x"))
    assert len(inbox) <= MAX_PEERS


def test_after_one_that_was_given_up_the_next_ones_arrive() -> None:
    net = Net(1, loss=0.0, double=0.0, delay_s=0.1)
    net.cut = True
    net.send(1, word(1))
    net.run(0.5)
    net.cut = False
    net.send(1, word(2))
    net.run(0.9)
    assert len(net.nodes[2].channel._reorder_buffer) == 1, "the second waits for the first"
    net.cut = True
    net.run(15.3)
    assert lost(net.nodes[1]) == [1], "and is sent again until it may be taken"
    net.cut = False
    net.send(1, word(3))
    net.run(100.0)
    assert numbers(net.nodes[2]) == [2, 3]
    assert lost(net.nodes[1]) == [1]
    assert len(net.nodes[2].channel._reorder_buffer) == 0


def test_one_that_waits_at_its_receiver_alone_is_taken_when_the_one_before_it_is_given_up() -> None:
    net = Net(1, loss=0.0, double=0.0, delay_s=0.1)
    net.cut = True
    net.send(1, word(1))
    net.run(14.0)
    net.cut = False
    net.send(1, word(2))
    net.run(14.5)
    net.cut = True
    net.run(15.1)
    assert lost(net.nodes[1]) == [1]
    net.cut = False
    net.run(100.0)
    assert (numbers(net.nodes[2]), lost(net.nodes[1])) == ([2], [1])


def test_copies_that_come_late_leave_nothing_behind() -> None:
    port = RecordingPort()
    inbox = ReorderBuffer(port, TYPES.read, 1)
    body = msgspec.msgpack.encode(word(1))
    assert inbox.take(0.0, 9, packet(1, body=body)) == [word(1)]
    for first in (0, 1):
        assert inbox.take(0.0, 9, packet(1, first=first, body=body)) == []
    assert len(inbox) == 0
    assert [effect.fact.reason for effect in port.take() if isinstance(effect, Note)] == ["channel_repeated"] * 2


# Large messages.


def test_a_message_larger_than_the_window_travels_in_pieces() -> None:
    net = Net(3, loss=0.1, double=0.1, delay_s=0.2, limits=LIMITS._replace(retries=30))
    assert net.send(1, word(1, size=20 * (3 * WINDOW)))
    assert net.send(1, word(2))
    net.run(10_000)
    assert [(one.number, len(one.text)) for one in net.nodes[2].received] == [(1, 60 * WINDOW), (2, 0)]
    assert net.nodes[2].most <= WINDOW
    assert ("channel_ahead", 1) not in net.nodes[2].drops


def test_one_that_gets_on_has_all_its_retries_again() -> None:
    net = Net(3, loss=0.1, double=0.0, delay_s=0.1, limits=LIMITS._replace(retries=2))
    net.send(1, word(1, size=20 * (10 * WINDOW)))
    net.run(10_000)
    assert numbers(net.nodes[2]) == [1]


def test_one_behind_a_large_one_waits_for_it_however_long_that_takes() -> None:
    net = Net(3, loss=0.0, double=0.0, delay_s=0.1)
    net.cut = True
    net.send(1, word(1, size=20 * 200))
    net.cut = False
    net.send(1, word(2))
    net.run(0.65)
    assert len(net.nodes[2].channel._reorder_buffer) == 1
    # The first gets on in the middle of its retries, so it has them all again; the second would have had its last.
    for until, cut, loss in ((6.9, True, 0.0), (9.5, False, 0.5), (15.9, True, 0.0), (100.0, False, 0.0)):
        net.cut, net.loss = cut, loss
        net.run(until)
    assert numbers(net.nodes[2]) == [1, 2]
    assert net.nodes[1].given_up == []


def test_one_that_no_receiver_would_take_is_refused_by_name() -> None:
    net = Net(1, loss=0.0, double=0.0, delay_s=0.0)
    assert not net.send(1, word(1, size=20 * 4096))
    assert net.nodes[1].drops == [("channel_too_large", 2)]


# Restarts.


def test_a_peer_that_started_anew_is_sent_nothing_that_was_for_its_past() -> None:
    net = Net(1, loss=0.0, double=0.0, delay_s=0.1)
    net.send(1, word(1))
    net.run(5.0)
    net.cut = True
    net.send(1, word(2))
    net.run(5.5)
    old = net.restart(2)
    net.cut = False
    net.run(10.0)
    assert lost(net.nodes[1]) == [2]
    assert [one.cause for one in net.nodes[1].given_up] == [Failure.RESTARTED]
    assert net.nodes[2].drops == [("channel_past", 1)]
    net.send(1, word(3))
    net.run(20.0)
    assert (numbers(old), numbers(net.nodes[2])) == ([1], [3])


def test_a_sender_that_started_anew_is_heard_from_its_first_word_on() -> None:
    net = Net(1, loss=0.0, double=0.0, delay_s=0.1)
    for number in (1, 2, 3):
        net.send(1, word(number))
    net.run(5.0)
    net.restart(1)
    net.send(1, word(4))
    net.run(10.0)
    assert numbers(net.nodes[2]) == [1, 2, 3, 4]


def test_words_of_a_past_session_and_answers_to_it_are_dropped_by_name() -> None:
    net = Net(1, loss=0.0, double=0.0, delay_s=0.1)
    net.send(1, word(1))
    net.run(5.0)
    one, two = net.nodes[1], net.nodes[2]
    two.channel.on_packet(5.0, 1, packet(7, session=3))
    assert two.channel.on_packet(5.0, 1, packet(8, session=2)) == []
    for ack in (Ack(9, 1, 0, ()), Ack(1, 1, 500, ()), Ack(1, 0, 1, ())):
        assert one.channel.on_ack(5.0, 2, ack) == []
    assert one.channel.on_ack(5.0, 77, Ack(1, 1, 0, ())) == []
    reasons = [effect.fact.reason for node in (one, two) for effect in node.port.take() if isinstance(effect, Note)]
    assert reasons[:4] == ["channel_ack_unknown", "channel_ack_unknown", "channel_past", "channel_ack_unknown"]
    assert reasons[4:] == ["channel_malformed", "channel_past"]


# One packet at a time.


def packet(number: int, session: int = 1, first: int | None = None, body: bytes = b"", **fields: int) -> Packet:
    values: dict[str, object] = {"index": 0, "count": 1, "peer": None, **fields}
    start = number if first is None else first
    return Packet(Parcel(body, Traffic.CONTROL), session=session, number=number, first=start, **values)  # type: ignore[arg-type] # by name


@pytest.mark.parametrize(
    "bad",
    [
        packet(5, body=b"\xc1"),
        packet(5, index=1, count=1),
        packet(5, index=1, count=2),
        packet(5, first=9),
    ],
)
def test_what_makes_no_sense_is_dropped_by_name(bad: Packet) -> None:
    port = RecordingPort()
    inbox = ReorderBuffer(port, TYPES.read, 1)
    assert inbox.take(0.0, 2, bad) == []
    assert [effect.fact.reason for effect in port.take() if isinstance(effect, Note)] == ["channel_malformed"]


def test_a_message_that_a_world_refuses_is_dropped_by_its_reason_and_the_next_one_comes() -> None:
    class Refused(enum.StrEnum):
        LARGE = "word_too_large"

    def read(body: bytes) -> Message:
        message = TYPES.read(body)
        if isinstance(message, Word) and len(message.text) > 5:
            raise DecodeError(Refused.LARGE)
        return message

    port = RecordingPort()
    inbox = ReorderBuffer(port, read, 1)
    bodies = [msgspec.msgpack.encode(word(number, size=size)) for number, size in enumerate((1, 6, 2))]
    came = [one for number, body in enumerate(bodies) for one in inbox.take(0.0, 2, packet(number, body=body))]
    assert came == [word(0, size=1), word(2, size=2)]
    assert [effect.fact.reason for effect in port.take() if isinstance(effect, Note)] == ["word_too_large"]


def test_packets_count_as_what_they_carry() -> None:
    carriedby: list[Message] = []
    channel = Channel(RecordingPort(), lambda peer, message: carriedby.append(message), TYPES, 1)
    event = Event(EventId(1, 1), {"topic": "t"})
    channel.send(0.0, 2, Told(event, 1, 5.0))
    channel.send(0.0, 2, word(1))
    assert [classify(one) for one in carriedby] == [(Traffic.DATA, event.id), (Traffic.CONTROL, None)]


def test_the_time_that_a_message_waits_for_others_is_taken_off_it() -> None:
    port = RecordingPort()
    inbox = ReorderBuffer(port, TYPES.read, 1)
    body = msgspec.msgpack.encode(word(1, good_s=10.0))
    late = packet(0, body=body)
    early, over = packet(1, first=0, body=body).age_by(3.0), packet(2, first=0, body=body).age_by(8.0)
    assert early is not None
    assert over is not None
    assert inbox.take(0.0, 2, early) == []
    assert inbox.take(0.0, 2, over) == []
    [one, two] = inbox.take(4.0, 2, late)
    assert isinstance(one, Word)
    assert isinstance(two, Word)
    assert (one.good_s, two.good_s) == (10.0, 3.0)
    assert [effect.fact.reason for effect in port.take() if isinstance(effect, Note)] == ["lease_over"]


def test_stopping_disarms_every_timer() -> None:
    net = Net(1, loss=1.0, double=0.0, delay_s=0.0)
    for number in range(10):
        net.send(1, word(number))
    node = net.nodes[1]
    node.channel.stop()
    for effect in node.port.take():
        assert isinstance(effect, CancelTimer)
        node.armed.pop(effect.key, None)
    assert (node.armed, len(node.channel)) == ({}, 0)
