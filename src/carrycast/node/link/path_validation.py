"""Path validation: frames are accepted only from addresses that have returned a challenge (RFC 9000, 8.1 and 8.2).

Anybody can write a sender's id and address into a datagram. So the first frame from an address is held back, and a
challenge, a random number, is sent to that address; only a node that is there can return it. A third party whose
address was forged gets nothing from this node but that one short datagram.

Frames for a node go to one address of it. If it is heard from another, the current address is challenged too, and only
if that does not respond does the new one take its place: a neighbor that has moved does not respond where it was. While
it responds, the other address is one more interface of the same node, or an attacker that uses its id and does not get
the frames for it.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.frame import MAX_SENDERS, LinkFrame
from carrycast.node.recorder import LOG

MAX_VALIDATIONS = 1024
"""Paths that are being validated, whichever senders they claim; the oldest makes room."""
HELD_FRAMES = 64
"""Frames held back for one of them: what a neighbor may send until its response has come."""
HELD_BYTES = 1 << 22
"""Of all of them."""

UNPROVEN = "link_unproven"

LinkPath: TypeAlias = tuple[NodeId, LinkAddress]


class HeldFrame(NamedTuple):
    """A frame that is held back until its path is validated."""

    frame: LinkFrame
    to_group: bool
    since_s: float


@dataclass(slots=True)
class _Validation:
    number: int
    current: LinkAddress | None
    """The address that frames for the sender go to now, which is challenged too."""
    current_number: int
    timer: asyncio.TimerHandle
    responded: bool = False
    current_responded: bool = False
    held: list[HeldFrame] = field(default_factory=list)


class PathUser(ABC):
    """The layer that sends challenges and receives the frames of validated paths."""

    @abstractmethod
    def send_challenge(self, target: NodeId, address: LinkAddress, number: int) -> None:
        """One datagram to an address; the response to it goes to `PathValidator.on_response`."""

    @abstractmethod
    def on_validated(self, held: HeldFrame, address: LinkAddress) -> None:
        """The path of a frame that was held back is valid."""

    @abstractmethod
    def on_drop(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """A frame that was held back is dropped."""


WARN_AGAIN_S = 60.0


class PathValidator:
    """The validated addresses of other nodes, and those that are being validated."""

    def __init__(self, timeout_s: float, format_address: Callable[[LinkAddress], str], user: PathUser) -> None:
        self._timeout_s = timeout_s
        self._format_address = format_address
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._current: OrderedDict[NodeId, LinkAddress] = OrderedDict()
        """Where frames for a node go."""
        self._others: OrderedDict[LinkPath, None] = OrderedDict()
        """Other validated paths from a node."""
        self._validations: OrderedDict[LinkPath, _Validation] = OrderedDict()
        self._held_bytes = 0
        self._quiet_until_s: dict[NodeId, float] = {}
        """Until when the log has no further warning of a node with two addresses."""

    def close(self) -> None:
        """End all validations."""
        for validation in self._validations.values():
            validation.timer.cancel()
        self._validations.clear()

    def admit(self, frame: LinkFrame, address: LinkAddress, to_group: bool) -> bool:
        """Whether a frame may be received now; else it is held back, or dropped."""
        sender = frame.sender
        path = (sender, address)
        if self._current.get(sender) == address:
            self._current.move_to_end(sender)
            return True
        if path in self._others:
            self._others.move_to_end(path)
            return True
        validation = self._validations.get(path) or self._start(path)
        if len(validation.held) >= HELD_FRAMES or self._held_bytes + len(frame.body) > HELD_BYTES:
            self._user.on_drop(UNPROVEN, sender)
        else:
            validation.held.append(HeldFrame(frame, to_group, self._loop.time()))
            self._held_bytes += len(frame.body)
        return False

    def find_address(self, node: NodeId) -> LinkAddress:
        """Where frames for an admitted node go."""
        return self._current[node]

    def forget(self, node: NodeId) -> None:
        """A node cannot be reached any more; wherever it is heard next has to be validated again."""
        self._current.pop(node, None)
        self._quiet_until_s.pop(node, None)
        for path in [path for path in self._others if path[0] == node]:
            del self._others[path]

    def on_response(self, sender: NodeId, address: LinkAddress, number: int) -> bool:
        """A challenge has come back; False if it was not sent there, or comes too late."""
        validation = self._validations.get((sender, address))
        if validation is not None and validation.number == number:
            validation.responded = True
            if validation.current is None or validation.current_responded:
                self._complete((sender, address))
            return True
        for path, other in list(self._validations.items()):
            if path[0] == sender and other.current == address and other.current_number == number:
                other.current_responded = True
                if other.responded:
                    self._complete(path)
                return True
        return False

    def _start(self, path: LinkPath) -> _Validation:
        sender, address = path
        if len(self._validations) >= MAX_VALIDATIONS:
            self._drop(next(iter(self._validations)), UNPROVEN)
        current = self._current.get(sender)
        timer = self._loop.call_later(self._timeout_s, self._on_timeout, path)
        validation = _Validation(secrets.randbits(63), current, secrets.randbits(63), timer)
        self._validations[path] = validation
        if current is not None:
            self._user.send_challenge(sender, current, validation.current_number)
            # Once more: a response that is lost on its way must not look like none.
            self._loop.call_later(self._timeout_s / 2, self._challenge_current_again, path, validation)
        self._user.send_challenge(sender, address, validation.number)
        return validation

    def _challenge_current_again(self, path: LinkPath, validation: _Validation) -> None:
        unanswered = validation.current is not None and not validation.current_responded
        if self._validations.get(path) is validation and unanswered:
            self._user.send_challenge(path[0], validation.current, validation.current_number)

    def _on_timeout(self, path: LinkPath) -> None:
        if self._validations[path].responded:
            self._complete(path)
        else:
            self._drop(path, UNPROVEN)

    def _complete(self, path: LinkPath) -> None:
        sender, address = path
        if self._validations[path].current_responded and sender in self._current:
            if self._loop.time() >= self._quiet_until_s.get(sender, 0.0):
                self._quiet_until_s[sender] = self._loop.time() + WARN_AGAIN_S
                LOG.warning(
                    "node %s is heard from %s and from %s: two interfaces of it, two nodes with one identity, or a "
                    "forgery",
                    sender,
                    self._format_address(self._current[sender]),
                    self._format_address(address),
                )
            self._others[path] = None
            if len(self._others) > MAX_SENDERS:
                self._others.popitem(last=False)
        else:
            self._others.pop(path, None)
            self._current[sender] = address
            self._current.move_to_end(sender)
            if len(self._current) > MAX_SENDERS:
                self.forget(next(iter(self._current)))
        for held in self._end(path):
            self._user.on_validated(held, address)

    def _drop(self, path: LinkPath, reason: str) -> None:
        for _ in self._end(path):
            self._user.on_drop(reason, path[0])

    def _end(self, path: LinkPath) -> list[HeldFrame]:
        validation = self._validations.pop(path)
        validation.timer.cancel()
        self._held_bytes -= sum(len(held.frame.body) for held in validation.held)
        return validation.held
