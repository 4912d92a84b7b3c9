"""How many handshakes may cost a node how much: token buckets, for members and for strangers.

One stranger may have very many addresses: an IPv6 subscriber has a /64 at least, and often a /48. So strangers are
counted by prefixes, by the prefixes around these, and all together. Members have a share of their own, which no flood
of strangers can use up: hosts where a session was authenticated, and hosts that this node itself wants to reach.
"""

import ipaddress
from collections import OrderedDict
from typing import NamedTuple

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
