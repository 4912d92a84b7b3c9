"""Messages to peers are retried, superseded by key, aged while they wait, or given up with a cause."""

from collections.abc import Hashable
from typing import ClassVar

import pytest

from carrycast.core.model import Failure, NodeId
from carrycast.core.parts.outbox import (
    MAX_MOVES,
    QUEUE_TRIES,
    MessagePolicy,
    PathSelector,
    PeerOutbox,
    PeerPath,
    Undelivered,
)
from carrycast.core.protocol import RecordingPort, Token
from carrycast.core.protocol.effects import CancelTimer, Note, SetTimer
from carrycast.core.wire import Message

RADIO = PeerPath("radio", 0.01)
WIRE = PeerPath("wire", 0.001)


class Word(Message, frozen=True, gc=False, tag=1):
    """Something to say about a topic, for as long as it is good."""

    durations: ClassVar[tuple[str, ...]] = ("good_s",)

    topic: int
    number: int
    good_s: float = 10.0
    over: str = ""


class Words(MessagePolicy):
    """Words on the same topic take each other back, unless it is 0; those that are urgent do not wait."""

    def key(self, message: Message) -> Hashable:
        assert isinstance(message, Word)
        return message.topic or None

    def may_wait(self, message: Message) -> bool:
        assert isinstance(message, Word)
        return message.number < 100

    def adapt_to_path(self, message: Message, before: PeerPath, after: PeerPath) -> Message:
        assert isinstance(message, Word)
        return Word(message.topic, message.number, message.good_s, f"{before.interface} {after.interface}")


class Listed(PathSelector):
    """Ways that a test sets, best first."""

    def __init__(self, **paths: list[PeerPath]) -> None:
        self.paths: dict[NodeId, list[PeerPath]] = {int(name[1:]): list(known) for name, known in paths.items()}

    def best_path(self, peer: NodeId) -> PeerPath | None:
        return next(iter(self.paths.get(peer, [])), None)

    def retry_path(self, peer: NodeId, path: PeerPath) -> PeerPath | None:
        return path if self.paths.get(peer) == [path] else None

    def on_path_failed(self, peer: NodeId, path: PeerPath) -> None:
        if path in self.paths.get(peer, []):
            self.paths[peer].remove(path)


class Desk:
    """An outbox with what it has transmitted."""

    def __init__(self, paths: Listed | None = None, retries: int = 1, window: int | None = None) -> None:
        self.port = RecordingPort()
        self.paths = paths or Listed(n2=[RADIO])
        self.sent: list[tuple[NodeId, Word, str | None, Token]] = []
        self.outbox = PeerOutbox(self.port, self.paths, Words(), self._transmit, retries, window, capacity=3)

    def _transmit(self, now: float, peer: NodeId, message: Message, path: PeerPath, token: Token) -> None:
        assert isinstance(message, Word)
        self.sent.append((peer, message, path.interface, token))

    def take(self) -> list[tuple[int, Token]]:
        """The numbers of the words that were transmitted since the last look, with their tokens."""
        taken = [(word.number, token) for _, word, _, token in self.sent]
        self.sent.clear()
        return taken

    def drops(self) -> list[str]:
        return [effect.fact.reason for effect in self.port.take() if isinstance(effect, Note)]


def test_a_message_that_arrives_is_forgotten() -> None:
    desk = Desk()
    assert desk.outbox.send(0.0, 2, Word(1, 1))
    [(_, token)] = desk.take()
    assert desk.outbox.has_in_flight(2, "radio")
    assert not desk.outbox.has_in_flight(2, "wire")
    assert desk.outbox.on_sent(0.1, token, None) == []
    assert (len(desk.outbox), desk.outbox.has_in_flight(2, "radio")) == (0, False)


def test_who_cannot_be_reached_is_refused_by_name() -> None:
    desk = Desk()
    assert not desk.outbox.send(0.0, 3, Word(1, 1))
    assert desk.drops() == ["neighbor_unreachable"]


def test_the_only_way_is_tried_again_and_then_the_message_is_given_up_with_its_peer() -> None:
    desk = Desk()
    desk.outbox.send(0.0, 2, Word(1, 1))
    [(_, token)] = desk.take()
    assert desk.outbox.on_sent(0.25, token, Failure.UNREACHABLE) == []
    [(_, again, _, token)] = desk.sent
    assert again.good_s == pytest.approx(9.75), "the first try has taken time"
    assert desk.outbox.on_sent(0.5, token, Failure.UNREACHABLE) == [
        Undelivered(2, again, Failure.UNREACHABLE, lost=True)
    ]
    assert len(desk.outbox) == 0


def test_over_another_way_the_message_reads_as_it_has_to() -> None:
    desk = Desk(Listed(n2=[WIRE, RADIO]))
    desk.outbox.send(0.0, 2, Word(1, 1))
    [(_, token)] = desk.take()
    assert desk.outbox.on_sent(0.0, token, Failure.UNREACHABLE) == []
    [(_, moved, interface, _)] = desk.sent
    assert (moved.over, interface) == ("wire radio", "radio")


def test_ways_that_keep_coming_back_do_not_keep_a_message_for_ever() -> None:
    desk = Desk(Listed(n2=[WIRE, RADIO]), retries=0)
    desk.outbox.send(0.0, 2, Word(1, 1))
    for tries in range(1, 50):
        [(_, token)] = desk.take()
        given_up = desk.outbox.on_sent(0.0, token, Failure.UNREACHABLE)
        desk.paths.paths[2] = [WIRE, RADIO] if tries % 2 == 0 else [RADIO, WIRE]
        if given_up:
            break
    assert tries == 1 + MAX_MOVES
    assert not given_up[0].lost


def test_a_full_queue_is_waited_for_with_longer_and_longer_pauses() -> None:
    desk = Desk()
    desk.outbox.send(0.0, 2, Word(1, 1))
    now = 0.0
    for wait_s in (0.05, 0.1, 0.2, 0.4):
        [(_, token)] = desk.take()
        assert desk.outbox.on_sent(now, token, Failure.QUEUE_FULL) == []
        [timer] = desk.port.take()
        assert isinstance(timer, SetTimer)
        assert timer.key == ("resend", (token,))
        assert timer.delay_s == pytest.approx(wait_s)
        now += wait_s
        assert desk.outbox.on_timer(now, token) == []
    [(_, last, _, token)] = desk.sent
    assert last.good_s == pytest.approx(10 - 0.75)
    assert desk.outbox.on_sent(now, token, Failure.QUEUE_FULL) == [Undelivered(2, last, Failure.QUEUE_FULL, lost=True)]
    assert desk.drops() == ["neighbor_congested"]
    assert QUEUE_TRIES == 4


def test_what_does_not_wait_for_a_queue_is_given_up_and_says_nothing_of_the_peer() -> None:
    desk = Desk()
    desk.outbox.send(0.0, 2, Word(0, 100))
    [(_, token)] = desk.take()
    assert desk.outbox.on_sent(0.0, token, Failure.QUEUE_FULL) == [Undelivered(2, Word(0, 100), Failure.QUEUE_FULL)]
    assert desk.paths.best_path(2) == RADIO


def test_what_can_never_leave_is_given_up_at_once() -> None:
    desk = Desk()
    desk.outbox.send(0.0, 2, Word(0, 1))
    [(_, token)] = desk.take()
    assert desk.outbox.on_sent(0.0, token, Failure.TOO_LONG) == [Undelivered(2, Word(0, 1), Failure.TOO_LONG)]
    assert desk.paths.best_path(2) == RADIO


def test_a_lease_that_ends_in_the_wait_is_dropped_by_name() -> None:
    desk = Desk()
    desk.outbox.send(0.0, 2, Word(1, 1, good_s=0.04))
    [(_, token)] = desk.take()
    desk.outbox.on_sent(0.0, token, Failure.QUEUE_FULL)
    desk.port.take()
    assert desk.outbox.on_timer(0.05, token) == []
    assert (desk.drops(), desk.take(), len(desk.outbox)) == (["lease_over"], [], 0)


def test_a_peer_that_is_lost_while_a_message_waits_is_told_with_the_message() -> None:
    desk = Desk()
    desk.outbox.send(0.0, 2, Word(1, 1))
    [(_, token)] = desk.take()
    desk.outbox.on_sent(0.0, token, Failure.QUEUE_FULL)
    desk.paths.paths.clear()
    assert desk.outbox.on_timer(0.05, token) == [Undelivered(2, Word(1, 1), Failure.QUEUE_FULL)]


def test_what_a_later_message_has_superseded_is_not_sent_again() -> None:
    desk = Desk()
    desk.outbox.send(0.0, 2, Word(1, 1))
    desk.outbox.send(0.0, 2, Word(2, 2))
    desk.outbox.send(0.0, 2, Word(1, 3))
    tokens = dict(desk.take())
    assert desk.outbox.on_sent(0.1, tokens[1], Failure.UNREACHABLE) == []
    assert desk.take() == []
    desk.outbox.on_sent(0.1, tokens[2], Failure.UNREACHABLE)
    assert [number for number, _ in desk.take()] == [2]


def test_what_waits_for_a_queue_goes_when_it_is_superseded_at_that_peer_alone() -> None:
    desk = Desk(Listed(n2=[RADIO], n3=[RADIO]))
    for peer in (2, 3):
        desk.outbox.send(0.0, peer, Word(1, peer))
    tokens = dict(desk.take())
    for peer in (2, 3):
        desk.outbox.on_sent(0.0, tokens[peer], Failure.QUEUE_FULL)
    desk.port.take()
    desk.outbox.send(0.0, 2, Word(1, 9))
    assert desk.port.take() == [CancelTimer(("resend", (tokens[2],)))]
    assert desk.outbox.on_timer(0.05, tokens[3]) == []


def test_with_a_window_messages_take_their_turns() -> None:
    desk = Desk(window=1)
    for number in (1, 2, 3):
        desk.outbox.send(0.0, 2, Word(0, number))
    for number in (1, 2, 3):
        [(sent, token)] = desk.take()
        assert sent == number
        desk.outbox.on_sent(1.0, token, None)
    assert desk.take() == []


def test_what_waits_for_its_turn_grows_older_and_is_superseded() -> None:
    desk = Desk(window=1)
    for word in (Word(0, 1), Word(7, 2), Word(7, 3), Word(0, 4, good_s=1.0)):
        desk.outbox.send(0.0, 2, word)
    [(_, token)] = desk.take()
    desk.outbox.on_sent(2.0, token, None)
    [(_, third, _, token)] = desk.sent
    assert third.number == 3
    assert third.good_s == pytest.approx(8.0)
    desk.outbox.on_sent(2.0, token, None)
    assert (desk.drops(), len(desk.outbox)) == (["lease_over"], 0)


def test_more_than_may_wait_is_refused_by_name() -> None:
    desk = Desk(window=1)
    assert [desk.outbox.send(0.0, 2, Word(0, number)) for number in range(6)] == [True] * 4 + [False] * 2
    assert desk.drops() == ["outbox_full"] * 2


def test_with_the_last_way_all_that_waited_for_its_turn_is_given_up() -> None:
    desk = Desk(retries=0, window=1)
    for number in (1, 2, 3):
        desk.outbox.send(0.0, 2, Word(0, number))
    [(_, token)] = desk.take()
    given_up = desk.outbox.on_sent(0.0, token, Failure.UNREACHABLE)
    assert [(one.message, one.lost) for one in given_up] == [(Word(0, n), n == 1) for n in (1, 2, 3)]
    assert len(desk.outbox) == 0


def test_everything_for_a_peer_can_be_given_up_in_its_order() -> None:
    desk = Desk(Listed(n2=[RADIO], n3=[RADIO]), window=2)
    for number in (1, 2, 3):
        desk.outbox.send(0.0, 2, Word(0, number))
    desk.outbox.send(0.0, 3, Word(0, 9))
    tokens = dict(desk.take())
    desk.outbox.on_sent(0.0, tokens[1], Failure.QUEUE_FULL)
    desk.port.take()
    given_up = desk.outbox.give_up(2, Failure.RESTARTED)
    assert given_up == [Undelivered(2, Word(0, number), Failure.RESTARTED) for number in (1, 2, 3)]
    assert desk.port.take() == [CancelTimer(("resend", (tokens[1],)))]
    assert desk.outbox.give_up(2, Failure.RESTARTED) == []
    assert len(desk.outbox) == 1
    desk.outbox.stop()
    assert len(desk.outbox) == 0
