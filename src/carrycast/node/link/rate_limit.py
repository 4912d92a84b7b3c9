"""How much one neighbor may take of a node: its time, and places among its neighbors.

A neighbor's messages are read and handled on credit: it has some seconds of the node's CPU in advance, and gets back a
share of the time that passes. What other programs take of the processor meanwhile is not charged to it. While it has
none left, its messages are dropped before they are read, and are not acknowledged, so that an honest one sends them
again later.

To ask how much CPU was used takes longer than to handle some messages. So there is one account open at a time, until
something of another neighbor comes or the node's loop goes around: what came together is charged together.

How many handshakes may cost a node how much: token buckets, for members and for strangers.

One stranger may have very many addresses: an IPv6 subscriber has a /64 at least, and often a /48. So strangers are
counted by prefixes, by the prefixes around these, and all together. Members have a share of their own, which no flood
of strangers can use up: hosts where a session was authenticated, and hosts that this node itself wants to reach.

What a node says in its log of those it does not listen to: each once in a while, however often it happens.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.node.link.frame import MAX_SENDERS
from carrycast.node.link.socket_address import Address, format_address
from carrycast.node.recorder import LOG

MAX_KEPT = 1024
"""Hosts or prefixes of a level. The one that was looked at least recently makes room, and has a full bucket later."""
PREFIX_BITS = {4: 24, 6: 64}
"""What one stranger has easily: a subnet, in both families."""
SITE_BITS = {4: 16, 6: 48}
"""What a site gets of its provider [RFC 6177]."""


class _Level(NamedTuple):
    """The buckets of one kind. Rate and burst are those of one host, times this."""

    rate: float
    burst: float
    buckets: "OrderedDict[str, tuple[float, float]]"
    """What is left, and since when."""


class HandshakeBudget:
    """Of one interface."""

    def __init__(self, per_s: float, burst: float) -> None:
        """What one host may take: so many handshakes a second, and so many at once."""

        def level(rate: float, at_once: float) -> _Level:
            return _Level(rate * per_s, at_once * burst, OrderedDict())

        self._members = (level(1, 1), level(8, 4))
        # All strangers at once begin fewer handshakes than are remembered, so that they push out none of a member.
        self._strangers = (level(1, 1), level(2, 1), level(4, 2))
        self._known: OrderedDict[str, None] = OrderedDict()

    def trust(self, host: str) -> None:
        """A member was authenticated there, or this node wants to reach somebody there."""
        self._known[host] = None
        self._known.move_to_end(host)
        if len(self._known) > MAX_KEPT:
            self._known.popitem(last=False)

    def afford(self, host: str, now_s: float, cost: float) -> bool:
        """Whether a host has so much left; then it is taken."""
        if host in self._known:
            levels, keys = self._members, (host, "")
        else:
            levels, keys = self._strangers, (*prefixes(host), "")  # type: ignore[assignment]
        found = [(level, key, _left(level, key, now_s)) for level, key in zip(levels, keys, strict=True)]
        afforded = all(left >= cost for _, _, left in found)
        for level, key, left in found:
            level.buckets[key] = (left - cost if afforded else left, now_s)
            level.buckets.move_to_end(key)
            if len(level.buckets) > MAX_KEPT:
                level.buckets.popitem(last=False)
        return afforded


def _left(level: _Level, key: str, now_s: float) -> float:
    left, since_s = level.buckets.get(key, (level.burst, now_s))
    return min(level.burst, left + (now_s - since_s) * level.rate)


def prefixes(host: str) -> tuple[str, str]:
    """The prefix of a host, and the one of its site; the host itself where it is no IP address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host, host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    version, number, bits = address.version, int(address), address.max_prefixlen

    def cut(length: int) -> str:
        return f"{version} {number >> (bits - length)}/{length}"

    return cut(PREFIX_BITS[version]), cut(SITE_BITS[version])


AGAIN_S = 60.0
MAX_NOTICES = 256
"""Remembered. When so many are told of, all may be told of again: a flood of forged addresses fills no log quickly."""


class Notices:
    """Of one interface."""

    def __init__(self) -> None:
        self._told_s: dict[tuple[str, str], float] = {}
        self._full_s = float("-inf")

    def tell(self, address: Address, text: str) -> None:
        """Say it, unless it was said of that host a moment ago."""
        now_s, key = time.monotonic(), (address[0], text)
        if now_s - self._told_s.get(key, float("-inf")) < AGAIN_S:
            return
        if len(self._told_s) >= MAX_NOTICES:
            if now_s - self._full_s < AGAIN_S:
                return
            self._full_s = now_s
            self._told_s.clear()
        self._told_s[key] = now_s
        LOG.warning("%s: %s", format_address(address), text)


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For each neighbor on each interface."""

    neighbors: Annotated[int, Meta(ge=1, le=4096, description="neighbors on one interface; others are not heard")] = 256
    share: Annotated[
        float, Meta(gt=0, le=1, description="of a core, that handling the messages of one neighbor may take for long")
    ] = 0.9
    advance_s: Annotated[float, Meta(gt=0, le=3600, description="seconds of it that a neighbor may take at once")] = 5.0


class Quota:
    """What each neighbor has left. `soon` calls something when the loop goes around."""

    def __init__(self, settings: QuotaSettings, soon: Callable[[Callable[[], None]], object]) -> None:
        self.neighbors = settings.neighbors
        self._share = settings.share
        self._advance_s = settings.advance_s
        self._soon = soon
        self._spent: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()
        """How much of the advance is spent, as of when; nobody here has spent nothing."""
        self._open: NodeId | None = None
        """On whose account all that is done goes."""
        self._begun_s = 0.0
        self._settles = False

    def admit(self, neighbor: NodeId) -> bool:
        """Whether something of a neighbor may be handled now; then that is on its account."""
        if neighbor == self._open:
            return True
        self._charge()
        if self._owes(neighbor, time.perf_counter()) >= self._advance_s:
            return False
        self._open = neighbor
        self._begun_s = time.thread_time()
        if not self._settles:
            self._settles = True
            self._soon(self.settle)
        return True

    def settle(self) -> None:
        """What comes next is on nobody's account."""
        self._settles = False
        self._charge()

    def _owes(self, neighbor: NodeId, now_s: float) -> float:
        """How much of its advance a neighbor has still spent."""
        found = self._spent.get(neighbor)
        return 0.0 if found is None else max(found[0] - (now_s - found[1]) * self._share, 0.0)

    def _charge(self) -> None:
        neighbor, self._open = self._open, None
        if neighbor is None:
            return
        now_s = time.perf_counter()
        self._spent[neighbor] = (self._owes(neighbor, now_s) + time.thread_time() - self._begun_s, now_s)
        self._spent.move_to_end(neighbor)
        if len(self._spent) > MAX_SENDERS:
            self._spent.popitem(last=False)
