"""What failing links cost in a tree of brokers, by counting: an independent check of the simulator.

While a link is down, all brokers without a repository on their own side are cut off from all of them. If each link is
as likely to fail, and links are down a share d of the time, requests arrive with probability 1 - d q, where q is the
mean share of brokers cut off. Requests and responses take milliseconds, so what is on its way when a link fails is left
out.
"""

import math
from collections.abc import Collection


def side(node: int, link: int) -> bool:
    """Whether a node is below a link; link n joins node n to its parent, (n - 1) // 2."""
    while node > link:
        node = (node - 1) // 2
    return node == link


def share_cut_off(brokers: int, repositories: Collection[int]) -> float:
    """q: of all brokers, the share that reaches no repository, the mean over single links that are down."""
    cut_off = 0
    for link in range(1, brokers):
        held = {side(repository, link) for repository in repositories}
        cut_off += sum(side(broker, link) not in held for broker in range(brokers))
    return cut_off / brokers / (brokers - 1)


def share_down(every_s: float, for_s: float, last_s: float, window_s: tuple[float, float]) -> float:
    """d: of a window, the share in which a link is down, if one fails at every multiple of `every_s` until `last_s`."""
    low_s, high_s = window_s
    strikes = range(1, math.floor(last_s / every_s) + 1)
    down_s = sum(max(0.0, min(n * every_s + for_s, high_s) - max(n * every_s, low_s)) for n in strikes)
    return down_s / (high_s - low_s)
