"""A protocol that does nothing by itself: tests send through its port, and read which handlers were called."""

from random import Random
from typing import ClassVar

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Host, Interface, Link, Port, Protocol, Settings, TimerKey, Token
from carrycast.core.wire import Message


class Word(Message, frozen=True, tag=1):
    """A message with a text."""

    text: str


class Talker(Protocol):
    """Records its inputs. `all` has the instance of each node."""

    name = "talker"
    messages = (Word,)
    all: ClassVar[dict[NodeId, "Talker"]] = {}

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self.heard: list[str] = []
        self.vias: list[Interface] = []
        """The interface of each message."""
        self.outcomes: list[tuple[Token, Failure | None]] = []
        self.timers: list[TimerKey] = []
        self.links: list[NodeId] = []
        self.notifications: list[tuple[str, Link | Token]] = []
        """Link changes and outcomes of sends, in order."""
        Talker.all[node] = self

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Word)
        self.heard.append(message.text)
        self.vias.append(via)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self.outcomes.append((token, failure))
        self.notifications.append((failure or "sent", token))

    def on_timer(self, now: float, key: TimerKey) -> None:
        self.timers.append(key)

    def on_link_up(self, now: float, link: Link) -> None:
        self.links.append(link.neighbor)
        self.notifications.append(("up", link))

    def on_link_changed(self, now: float, link: Link) -> None:
        self.notifications.append(("changed", link))

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.notifications.append(("down", link))
