"""A node's own requests: sent as soon as somebody can be asked, and closed when all is here or the patience is over."""

from typing import Protocol

from carrycast.core.matching import serves
from carrycast.core.model import (
    Event,
    EventId,
    FilterText,
    NodeId,
    Request,
    RequestId,
    Scalar,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol import Fact, Port, TimerKey
from carrycast.services.retrieval.asks import Ask
from carrycast.services.retrieval.messages import MAX_IDS, WHOLE, AllAnswered, Answered, Asked, AskId
from carrycast.services.retrieval.settings import RetrievalSettings


class Forwarding(Protocol):
    """The node that a request is passed on by, and that answers are for."""

    def pass_own(self, now: float, asked: Asked, elsewhere: bool) -> tuple[NodeId, ...]:
        """Pass a request of this node on; to which neighbors, none if nobody can be asked."""

    def take_history(self, now: float, subscription: SubscriptionId, message: Answered) -> None:
        """A stored event for the history of a subscription."""

    def take_answer(self, now: float, message: Answered) -> None:
        """A stored event that this node asked for; it may have to keep it."""


class OwnRequests:
    """The requests of a node's applications, and the histories of its subscriptions."""

    def __init__(self, port: Port, settings: RetrievalSettings, incarnation: int, forwarding: Forwarding) -> None:
        self._port = port
        self.settings = settings
        self._waits = settings.no_route == "wait"
        self._incarnation = incarnation
        self._forwarding = forwarding
        self._number = 0
        self._asks: dict[AskId, Ask] = {}

    def stop(self) -> None:
        """Disarm everything."""
        for id in self._asks:
            self._disarm(id)
        self._asks.clear()

    def request(self, now: float, request: Request) -> None:
        """An application asks."""
        patience_s = request.patience_s
        self._ask(now, request.id, request.filter, request.attributes, patience_s, elsewhere=request.elsewhere)

    def cancel(self, request: RequestId) -> None:
        """Nobody waits for the answers any more: those that still come are for nobody."""
        for id, ask in list(self._asks.items()):
            if isinstance(ask.wanted_by, RequestId) and ask.wanted_by == request:
                self._disarm(id)
                del self._asks[id]

    def subscribe(self, now: float, subscription: Subscription, known: tuple[EventId, ...]) -> None:
        """A subscription wants its history."""
        if self._waits:
            # An earlier request for the same history that is still open would bring everything twice.
            for id in self._asks_of(subscription.id):
                self._disarm(id)
                del self._asks[id]
        patience_s = self.settings.history_s
        self._ask(now, subscription.id, subscription.filter, subscription.attributes, patience_s, known)

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A subscription has ended: what still comes of its history is for nobody."""
        for id in self._asks_of(subscription):
            self._close(now, id)

    def _asks_of(self, subscription: SubscriptionId) -> list[AskId]:
        # A request may have the same number; it is of another type.
        asks = self._asks.items()
        return [id for id, ask in asks if isinstance(ask.wanted_by, SubscriptionId) and ask.wanted_by == subscription]

    def on_timer(self, now: float, key: TimerKey) -> bool:
        """A timer of a request; False if it is none."""
        if not isinstance(key, tuple) or key[0] not in ("patience", "again"):
            return False
        word, id = key
        assert isinstance(id, AskId)
        if word == "patience":
            self._on_patience_over(now, id)
        else:
            self._ask_again(now, id)
        return True

    def lose(self, neighbor: NodeId) -> None:
        """A neighbor is gone: what was asked through it is asked again when somebody else can be."""
        for ask in self._asks.values():
            ask.waiting = ask.waiting or neighbor in ask.via

    def on_routes(self, now: float) -> None:
        """A neighbor or an advertisement is new: what waits for one, or has waited too long, is asked now."""
        for id, ask in list(self._asks.items()):
            if ask.waiting:
                self._ask_anew(now, id, ask)
            elif ask.late:
                # Not with each advertisement: a neighbor may say as many as it likes.
                self._port.set_timer(("again", id), max(0.0, ask.not_before - now))

    def _ask_anew(self, now: float, id: AskId, ask: Ask) -> None:
        if ask.via:
            ask.again()
        ask.not_before = now + self.settings.history_s
        self._send(now, id, ask, ask.until - now)

    def _ask(
        self,
        now: float,
        wanted_by: RequestId | SubscriptionId,
        filter: FilterText,
        attributes: dict[str, Scalar],
        patience_s: float,
        known: tuple[EventId, ...] = (),
        elsewhere: bool = False,
    ) -> None:
        self._port.note(Fact("ask"))
        if len(self._asks) >= self.settings.max_asks:
            self._port.note(Fact("drop", reason="too_many_asks"))
            self._tell_end(wanted_by, complete=False)
            return
        self._number += 1
        id = AskId(self._incarnation, self._number)
        ask = self._asks[id] = Ask(now, wanted_by, filter, attributes, patience_s, self.settings.retries, elsewhere)
        ask.taken |= dict.fromkeys(known)
        # Endless patience is an infinite delay, which arms nothing.
        self._port.set_timer(("patience", id), patience_s)
        if ask.retries:
            self._port.set_timer(("again", id), self.settings.retry_s)
        self._send(now, id, ask, patience_s)

    def _ask_again(self, now: float, id: AskId) -> None:
        ask = self._asks.get(id)
        if ask is not None and ask.late and not ask.waiting:
            self._ask_anew(now, id, ask)
            return
        if ask is None or ask.until <= now:
            return
        if ask.waiting and self._waits:
            self._port.set_timer(("again", id), self.settings.retry_s)
            return
        ask.retries -= 1
        ask.again()
        if ask.retries:
            self._port.set_timer(("again", id), self.settings.retry_s)
        self._port.note(Fact("ask_again", value=float(len(ask.missing()))))
        self._send(now, id, ask, ask.until - now)

    def _send(self, now: float, id: AskId, ask: Ask, remaining_s: float) -> None:
        remaining_s = float("inf") if self._lasts(ask) else remaining_s
        known = tuple(ask.taken)[-MAX_IDS:]
        asked = Asked(id._replace(attempt=ask.attempt), ask.filter, ask.attributes, (), remaining_s, known=known)
        via = self._forwarding.pass_own(now, asked, ask.elsewhere)
        if via:
            ask.waiting, ask.via = False, via
        elif self._waits:
            if not ask.waiting:
                ask.waiting = True
                self._port.note(Fact("ask_waits"))
        elif not ask.retries:
            # Nobody was asked, so nobody can say that there is nothing.
            self._close(now, id)

    def _lasts(self, ask: Ask) -> bool:
        """Whether it is asked for as long as its subscription stands."""
        return self._waits and isinstance(ask.wanted_by, SubscriptionId)

    def take(self, now: float, message: Answered | AllAnswered) -> None:
        """An answer has come back."""
        ask = self._asks.get(own_number(message.ask))
        if ask is None:
            event = message.event.id if isinstance(message, Answered) else None
            self._port.note(Fact("drop", event=event, reason="answer_for_nobody"))
            return
        if isinstance(message, AllAnswered):
            if message.ask.attempt == ask.attempt:
                ask.credit = min(WHOLE, ask.credit + message.credit)
            ask.announced |= dict.fromkeys(message.events)
        elif message.event.id in ask.taken or not self._fits(ask, message.event):
            reason = "answer_repeated" if message.event.id in ask.taken else "answer_unasked"
            self._port.note(Fact("drop", event=message.event.id, reason=reason))
            return
        else:
            if not ask.taken:
                self._port.note(Fact("ask_answered"))
            ask.taken[message.event.id] = None
            self._port.note(Fact("response", event=message.event.id, value=float(message.hops)))
            self._forwarding.take_answer(now, message)
            if isinstance(ask.wanted_by, RequestId):
                self._port.answer(ask.wanted_by, message.event, message.hops)
            else:
                self._forwarding.take_history(now, ask.wanted_by, message)
        if ask.complete():
            self._close(now, own_number(message.ask))

    def _fits(self, ask: Ask, event: Event) -> bool:
        """Nobody knows who answers: what does not match, or is not for this asker, is not handed on."""
        return serves(event, Subscription(SubscriptionId(0, 0), ask.filter, attributes=ask.attributes))

    def _on_patience_over(self, now: float, id: AskId) -> None:
        ask = self._asks[id]
        if not self._lasts(ask):
            self._close(now, id)
            return
        ask.late = True
        self._note_incomplete(ask)
        self._tell_end(ask.wanted_by, complete=False)

    def _close(self, now: float, id: AskId) -> None:
        ask = self._asks.pop(id)
        self._disarm(id)
        complete = ask.complete()
        if complete:
            self._port.note(Fact("ask_complete", value=now - ask.since))
        elif not ask.late:
            self._note_incomplete(ask)
        self._tell_end(ask.wanted_by, complete)

    def _disarm(self, id: AskId) -> None:
        self._port.cancel_timer(("patience", id))
        self._port.cancel_timer(("again", id))

    def _note_incomplete(self, ask: Ask) -> None:
        self._port.note(Fact("ask_incomplete", value=float(len(ask.missing()))))
        for event in ask.missing()[:MAX_IDS]:
            self._port.note(Fact("missing", event=event))

    def _tell_end(self, wanted_by: RequestId | SubscriptionId, complete: bool) -> None:
        if isinstance(wanted_by, RequestId):
            self._port.close_request(wanted_by, complete)
        else:
            self._port.close_history(wanted_by, complete)


def own_number(ask: AskId) -> AskId:
    """The number under which an ask is known here, whatever its attempt."""
    return ask._replace(attempt=0)
