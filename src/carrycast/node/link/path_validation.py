"""Path validation: frames are accepted only from addresses that have returned a challenge (RFC 9000, 8.1 and 8.2).

Any node can forge the sender and the source address of a datagram. So the first frame from an address is held back, and
a challenge, a random number, is sent to that address. Only a node at that address can return it. A victim whose address
was forged receives one short datagram from this node.

Frames for a node are sent to one address, its current address. If the node is heard from another address, both
addresses are challenged. The other address becomes the current one only if the current one does not respond: then the
node has moved. If both respond, the other address is either a second interface of the node, or an attacker with its id,
which does not receive its frames.
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
"""The most validations at once, of all senders; the oldest is ended for a new one."""
HELD_FRAMES = 64
"""The most frames that are held back for one validation: as many as a neighbor sends before its response arrives."""
HELD_BYTES = 1 << 22
"""The most bytes that are held back for all validations."""

UNPROVEN = "link_unproven"

LinkPath: TypeAlias = tuple[NodeId, LinkAddress]


class HeldFrame(NamedTuple):
    """A frame that is held back until its path is validated."""

    frame: LinkFrame
    to_group: bool
    since_s: float


@dataclass(slots=True)
class _Validation:
    """The validation of one path."""

    number: int
    """The challenge of the new address."""
    current: LinkAddress | None
    """The current address of the sender, which is challenged too."""
    current_number: int
    """The challenge of the current address."""
    timer: asyncio.TimerHandle
    responded: bool = False
    current_responded: bool = False
    held: list[HeldFrame] = field(default_factory=list)


class PathUser(ABC):
    """The object that sends challenges and receives the frames of validated paths."""

    @abstractmethod
    def send_challenge(self, target: NodeId, address: LinkAddress, number: int) -> None:
        """Send a challenge to an address; the response goes to `PathValidator.on_response`."""

    @abstractmethod
    def on_validated(self, held: HeldFrame, address: LinkAddress) -> None:
        """The path of a frame that was held back is validated."""

    @abstractmethod
    def on_drop(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """Frames were dropped because their path was not validated."""


WARN_AGAIN_S = 60.0
"""The least time between two warnings about one node."""


class PathValidator:
    """The validated paths from other nodes, and the validations in progress."""

    def __init__(self, timeout_s: float, format_address: Callable[[LinkAddress], str], user: PathUser) -> None:
        self._timeout_s = timeout_s
        self._format_address = format_address
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._current: OrderedDict[NodeId, LinkAddress] = OrderedDict()
        """The current address of each node, to which frames for it are sent."""
        self._others: OrderedDict[LinkPath, None] = OrderedDict()
        """Other validated paths."""
        self._validations: OrderedDict[LinkPath, _Validation] = OrderedDict()
        self._held_bytes = 0
        self._quiet_until_s: dict[NodeId, float] = {}
        """Until when no other warning about a node with two addresses is logged."""

    def close(self) -> None:
        """End all validations."""
        for validation in self._validations.values():
            validation.timer.cancel()
        self._validations.clear()

    def admit(self, frame: LinkFrame, address: LinkAddress, to_group: bool) -> bool:
        """Whether a frame is accepted now; otherwise it is held back, or dropped."""
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
        """Return the current address of a node whose frame was admitted."""
        return self._current[node]

    def forget(self, node: NodeId) -> None:
        """Forget the paths of a node that cannot be reached any more; they have to be validated again."""
        self._current.pop(node, None)
        self._quiet_until_s.pop(node, None)
        for path in [path for path in self._others if path[0] == node]:
            del self._others[path]

    def on_response(self, sender: NodeId, address: LinkAddress, number: int) -> bool:
        """A challenge was returned; False if it was not sent to this address, or returns too late."""
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
            # Sent twice: the node must not seem to have moved because one response was lost.
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
