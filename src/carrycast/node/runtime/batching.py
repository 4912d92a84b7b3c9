"""Messages that may travel as one: what is said to the same neighbor while the loop goes around once.

A message type says what two of it are together (`Message.joined`); most say nothing, and go at once. The others wait
until the loop has gone around, so that a burst of events is told of in one message and not in one for each.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from carrycast.core.model import NodeId
from carrycast.core.protocol import Interface, Token
from carrycast.core.protocol.effects import Broadcast, Send
from carrycast.core.wire import Layer, Message

Leave: TypeAlias = Callable[[Layer, Send | Broadcast, tuple[Token, ...]], None]
"""Sends a message, on whose way these tokens are."""
_Way: TypeAlias = tuple[Layer, type[Message], NodeId | None, Interface | None]

_replace = msgspec.structs.replace


class MessageBatching:
    """What a node is about to say."""

    def __init__(self, loop: asyncio.AbstractEventLoop, leave: Leave) -> None:
        self._loop = loop
        self._leave = leave
        self._waiting: dict[_Way, tuple[Send | Broadcast, list[Token]]] = {}
        self._joinable: dict[type[Message], bool] = {}

    def send(self, layer: Layer, effect: Send | Broadcast) -> None:
        """At once, or together with others of its kind."""
        kind = type(effect.message)
        joinable = self._joinable.get(kind)
        if joinable is None:
            joinable = self._joinable[kind] = kind.joined is not Message.joined
        if isinstance(effect, Send):
            tokens = () if effect.token is None else (effect.token,)
            way: _Way = (layer, kind, effect.target, effect.via)
        else:
            tokens = ()
            way = (layer, kind, None, effect.on)
        if joinable:
            self._join(way, effect, tokens)
        else:
            self._leave(layer, effect, tokens)

    def flush(self) -> None:
        """All that waits leaves."""
        waiting, self._waiting = self._waiting, {}
        for (layer, *_), (effect, tokens) in waiting.items():
            self._leave(layer, effect, tuple(tokens))

    def forget(self) -> None:
        """Nothing that waits will leave."""
        self._waiting.clear()

    def _join(self, way: _Way, effect: Send | Broadcast, tokens: tuple[Token, ...]) -> None:
        found = self._waiting.get(way)
        if found is None:
            if not self._waiting:
                self._loop.call_soon(self.flush)
            self._waiting[way] = (effect, list(tokens))
            return
        before, others = found
        joined = before.message.joined(effect.message)
        if joined is None:  # Too much for one message.
            self._leave(way[0], before, tuple(others))
            self._waiting[way] = (effect, list(tokens))
            return
        others.extend(tokens)
        self._waiting[way] = (_replace(before, message=joined), others)
