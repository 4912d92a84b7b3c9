"""Batching: messages of one type to one neighbor are merged within a turn of the event loop.

A message type defines how two of its messages are merged (`Message.merge_with`); most types define nothing, and are
sent at once. The others wait until the end of the turn, so that a burst of events is announced in one message.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from carrycast.core.model import NodeId
from carrycast.core.protocol import Broadcast, Interface, Send, Token
from carrycast.core.wire import Layer, Message

SendBatch: TypeAlias = Callable[[Layer, Send | Broadcast, tuple[Token, ...]], None]
"""Sends a message that stands for the messages with these tokens."""
_Destination: TypeAlias = tuple[Layer, type[Message], NodeId | None, Interface | None]

_replace = msgspec.structs.replace


class MessageBatching:
    """The messages of one node that wait for the end of the turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: SendBatch) -> None:
        self._loop = loop
        self._send_batch = send
        self._waiting: dict[_Destination, tuple[Send | Broadcast, list[Token]]] = {}
        self._can_merge: dict[type[Message], bool] = {}

    def send(self, layer: Layer, effect: Send | Broadcast) -> None:
        """Send a message at once, or merged with others of its type."""
        kind = type(effect.message)
        can_merge = self._can_merge.get(kind)
        if can_merge is None:
            can_merge = self._can_merge[kind] = kind.merge_with is not Message.merge_with
        if isinstance(effect, Send):
            tokens = () if effect.token is None else (effect.token,)
            destination: _Destination = (layer, kind, effect.target, effect.via)
        else:
            tokens = ()
            destination = (layer, kind, None, effect.on)
        if can_merge:
            self._merge(destination, effect, tokens)
        else:
            self._send_batch(layer, effect, tokens)

    def flush(self) -> None:
        """Send all waiting messages."""
        waiting, self._waiting = self._waiting, {}
        for (layer, *_), (effect, tokens) in waiting.items():
            self._send_batch(layer, effect, tuple(tokens))

    def clear(self) -> None:
        """Drop all waiting messages."""
        self._waiting.clear()

    def _merge(self, destination: _Destination, effect: Send | Broadcast, tokens: tuple[Token, ...]) -> None:
        found = self._waiting.get(destination)
        if found is None:
            if not self._waiting:
                self._loop.call_soon(self.flush)
            self._waiting[destination] = (effect, list(tokens))
            return
        before, others = found
        joined = before.message.merge_with(effect.message)
        if joined is None:  # Too long for one message.
            self._send_batch(destination[0], before, tuple(others))
            self._waiting[destination] = (effect, list(tokens))
            return
        others.extend(tokens)
        self._waiting[destination] = (_replace(before, message=joined), others)
