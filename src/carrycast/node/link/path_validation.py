"""Where other nodes are: nobody is listened to before it has answered from the address that it speaks from.

A sender's name and address can be written by anybody. So the first frame from an address is held back, and its speaker
challenged: a random number goes to that address, and who returns it is there. A third party whose address was written
gets nothing from this node but that one short datagram.

What is meant for a node goes to one address of it. If it is heard from another, the old one is challenged too, and
only if that is silent does the new one take its place: a neighbor that has moved is silent where it was. While it
answers, the other is one more interface of the same node, or somebody who speaks in its name and does not get what is
meant for it.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from carrycast.core.model import NodeId
from carrycast.node.link.frame import MAX_SENDERS, LinkFrame
from carrycast.node.link.socket_address import Address, format_address
from carrycast.node.recorder import LOG

MAX_TRIALS = 1024
"""Addresses that have not answered yet, whoever claims to be there; the oldest makes room."""
HELD_FRAMES = 64
"""Frames of one of them: what a neighbor may say in the moment until it has answered."""
HELD_BYTES = 1 << 22
"""Of all of them."""

UNPROVEN = "link_unproven"

Place: TypeAlias = tuple[NodeId, Address]


class Held(NamedTuple):
    """A frame that waits for its sender's answer."""

    frame: LinkFrame
    to_group: bool
    since_s: float


@dataclass(slots=True)
class _Trial:
    number: int
    rival: Address | None
    rival_number: int
    timer: asyncio.TimerHandle
    answered: bool = False
    rivaled: bool = False
    """The sender has answered from where it was, too."""
    held: list[Held] = field(default_factory=list)


class PathUser(ABC):
    """Who sends challenges and takes what was held back."""

    @abstractmethod
    def challenge(self, target: NodeId, address: Address, number: int) -> None:
        """One datagram to an address; its answer goes to `Paths.on_answer`."""

    @abstractmethod
    def released(self, held: Held, address: Address) -> None:
        """Its sender is there."""

    @abstractmethod
    def dropped(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """Something held back is dropped, by a name."""


TOLD_S = 60.0


class Paths:
    """The addresses that have answered, and those on trial."""

    def __init__(self, patience_s: float, user: PathUser) -> None:
        self._patience_s = patience_s
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._main: OrderedDict[NodeId, Address] = OrderedDict()
        """Where what is meant for a node goes."""
        self._others: OrderedDict[Place, None] = OrderedDict()
        """Where else it is heard from."""
        self._trials: OrderedDict[Place, _Trial] = OrderedDict()
        self._held_bytes = 0
        self._told: dict[NodeId, float] = {}
        """Until when the log says nothing more of a node with two addresses."""

    def close(self) -> None:
        """Nobody is waited for any more."""
        for trial in self._trials.values():
            trial.timer.cancel()
        self._trials.clear()

    def admit(self, frame: LinkFrame, address: Address, to_group: bool) -> bool:
        """Whether a frame may be heard now; else it waits, or is dropped by name."""
        sender = frame.sender
        place = (sender, address)
        if self._main.get(sender) == address:
            self._main.move_to_end(sender)
            return True
        if place in self._others:
            self._others.move_to_end(place)
            return True
        trial = self._trials.get(place) or self._try(place)
        if len(trial.held) >= HELD_FRAMES or self._held_bytes + len(frame.body) > HELD_BYTES:
            self._user.dropped(UNPROVEN, sender)
        else:
            trial.held.append(Held(frame, to_group, self._loop.time()))
            self._held_bytes += len(frame.body)
        return False

    def address(self, node: NodeId) -> Address:
        """Where to send what is meant for a node that was admitted."""
        return self._main[node]

    def forget(self, node: NodeId) -> None:
        """It cannot be reached there any more; wherever it is heard next has to be proven anew."""
        self._main.pop(node, None)
        self._told.pop(node, None)
        for place in [place for place in self._others if place[0] == node]:
            del self._others[place]

    def on_answer(self, sender: NodeId, address: Address, number: int) -> bool:
        """A number has come back; False if it was not sent there, or is late."""
        trial = self._trials.get((sender, address))
        if trial is not None and trial.number == number:
            trial.answered = True
            if trial.rival is None or trial.rivaled:
                self._prove((sender, address))
            return True
        for place, other in list(self._trials.items()):
            if place[0] == sender and other.rival == address and other.rival_number == number:
                other.rivaled = True
                if other.answered:
                    self._prove(place)
                return True
        return False

    def _try(self, place: Place) -> _Trial:
        sender, address = place
        if len(self._trials) >= MAX_TRIALS:
            self._drop(next(iter(self._trials)), UNPROVEN)
        rival = self._main.get(sender)
        timer = self._loop.call_later(self._patience_s, self._end, place)
        trial = self._trials[place] = _Trial(secrets.randbits(63), rival, secrets.randbits(63), timer)
        if rival is not None:
            self._user.challenge(sender, rival, trial.rival_number)
            # Once more: what is lost on its way here must not look like silence.
            self._loop.call_later(self._patience_s / 2, self._ask_rival, place, trial)
        self._user.challenge(sender, address, trial.number)
        return trial

    def _ask_rival(self, place: Place, trial: _Trial) -> None:
        if self._trials.get(place) is trial and trial.rival is not None and not trial.rivaled:
            self._user.challenge(place[0], trial.rival, trial.rival_number)

    def _end(self, place: Place) -> None:
        if self._trials[place].answered:
            self._prove(place)
        else:
            self._drop(place, UNPROVEN)

    def _prove(self, place: Place) -> None:
        sender, address = place
        if self._trials[place].rivaled and sender in self._main:
            if self._loop.time() >= self._told.get(sender, 0.0):
                self._told[sender] = self._loop.time() + TOLD_S
                LOG.warning(
                    "node %s is heard from %s and from %s: two interfaces of it, two nodes with one identity, or a "
                    "forgery",
                    sender,
                    format_address(self._main[sender]),
                    format_address(address),
                )
            self._others[place] = None
            if len(self._others) > MAX_SENDERS:
                self._others.popitem(last=False)
        else:
            self._others.pop(place, None)
            self._main[sender] = address
            self._main.move_to_end(sender)
            if len(self._main) > MAX_SENDERS:
                self.forget(next(iter(self._main)))
        for held in self._take(place):
            self._user.released(held, address)

    def _drop(self, place: Place, reason: str) -> None:
        for _ in self._take(place):
            self._user.dropped(reason, place[0])

    def _take(self, place: Place) -> list[Held]:
        trial = self._trials.pop(place)
        trial.timer.cancel()
        self._held_bytes -= sum(len(held.frame.body) for held in trial.held)
        return trial.held
