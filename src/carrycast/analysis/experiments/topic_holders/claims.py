"""The statements of paper 003 about its Figures 4 and 5, which are orders of schemes, checked by paired differences.

The tolerances were fixed before the runs.
"""

from collections.abc import Iterator, Sequence

from carrycast.analysis.experiments.claim_builder import ClaimBuilder, difference_interval, ratio_of_seeds
from carrycast.analysis.spark import (
    DIFFERENCE_OF_SHARES,
    SHARE,
    Claim,
    ClaimCase,
    Interval,
    Results,
    Selector,
    confidence_interval,
)

FAR = 0.2
""""Far above" means a difference of at least a fifth of all pairs."""
MUCH = 2.0
"""Load is "much more" if it is at least this many times as much."""
MOST = 0.5
""""Most" means more than half."""
LOW_S = 0.5
"""A delay below this is low. It is half the refresh period of subscriptions."""
NO_WORSE = 0.01
"""Delivery is "at least as much" if the loss is no more than a hundredth of all pairs."""

DELIVERY, DELAY, LOAD, BEACONS = (
    "delivery_ratio",
    "delay_mean_s",
    "routing_bytes_per_node_s",
    "beacon_bytes_per_node_s",
)
MODES = ("R", "B")
NAMES = {"R": "rendezvous", "B": "broker"}
NODES, PLACES, ROADS = "AODV", "GPSR (no map)", "GPSR (with map)"
KINDS = (NODES, PLACES, ROADS)
SIX = tuple(f"{mode}-{kind}" for mode in MODES for kind in KINDS)
BEST = f"B-{ROADS}"
EXTENDED = "extended"
WITHOUT_K = "K = 0"


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims, setting by setting and figure by figure."""
    for setting in results.experiment.labels("setting"):
        builder = TopicHolderClaims(results, setting)
        yield from check_reliability(builder)
        yield from check_delay(builder)
        yield from check_load(builder)
        yield from check_expectation(builder)
        yield from check_proximity(builder)
        yield from check_beyond(builder)


def check_reliability(builder: "TopicHolderClaims") -> Iterator[Claim]:
    """[003 §5] Figures 4(a) and 5(a)."""
    lowest = [
        ClaimCase(f"{low} to {other}", builder.difference(low, other, DELIVERY))
        for low in _both_modes(PLACES)
        for other in (*_both_modes(NODES), *_both_modes(ROADS))
    ]
    yield builder.claim(builder.figure("delivery"), "geographic without map delivers least of all", lowest, below=0.0)
    nodes = [
        ClaimCase(NAMES[mode], builder.difference(f"{mode}-{NODES}", f"{mode}-{PLACES}", DELIVERY)) for mode in MODES
    ]
    yield builder.claim(
        builder.figure("delivery"), "AODV delivers more than geographic without map, in both modes", nodes, above=0.0
    )
    far = [
        ClaimCase(NAMES[mode], builder.difference(f"{mode}-{ROADS}", f"{mode}-{PLACES}", DELIVERY)) for mode in MODES
    ]
    yield builder.claim(
        builder.figure("delivery"), f"with map far above without ({FAR} or more), in both modes", far, at_least=FAR
    )
    helps = [
        ClaimCase(
            f"{NAMES[mode]} at {speed} m/s", builder.difference(f"{mode}-{ROADS}", f"{mode}-{PLACES}", DELIVERY, speed)
        )
        for mode in MODES
        for speed in builder.speeds
    ]
    yield builder.claim(builder.figure("delivery"), "the map helps at every speed", helps, above=0.0)
    best = [ClaimCase("", confidence_interval(builder.share_led(BEST, DELIVERY), SHARE))]
    yield builder.claim(
        builder.figure("delivery"),
        "broker with map is the best of the six at most speeds (share of them)",
        best,
        above=MOST,
    )
    for kind in (PLACES, ROADS):
        falls = [ClaimCase("", builder.rise_difference(f"R-{kind}", f"B-{kind}", DELIVERY))]
        word = "with map" if kind == ROADS else "without map"
        text = f"{word}, delivery of rendezvous falls more from the lowest speed to the highest than that of broker"
        yield builder.claim(builder.figure("delivery"), text, falls, below=0.0)


def check_delay(builder: "TopicHolderClaims") -> Iterator[Claim]:
    """[003 §5] Figures 4(b) and 5(b)."""
    highest = [
        ClaimCase(f"{high} to {other}", builder.difference(high, other, DELAY))
        for high in _both_modes(PLACES)
        for other in (*_both_modes(NODES), *_both_modes(ROADS))
    ]
    yield builder.claim(builder.figure("delay"), "geographic without map takes longest of all", highest, above=0.0)
    fast = builder.speeds[-1]
    low = [
        ClaimCase(
            f"{mode}-{NODES} to {mode}-{kind}", builder.difference(f"{mode}-{NODES}", f"{mode}-{kind}", DELAY, fast)
        )
        for mode in MODES
        for kind in (PLACES, ROADS)
    ]
    yield builder.claim(
        builder.figure("delay"), f"at {fast} m/s AODV takes less time than geographic, in both modes", low, below=0.0
    )
    still = [
        ClaimCase(scheme, confidence_interval(builder.values(scheme, DELAY, fast))) for scheme in _both_modes(NODES)
    ]
    yield builder.claim(builder.figure("delay"), f"at {fast} m/s AODV takes less than {LOW_S} s", still, below=LOW_S)
    for kind in (PLACES, ROADS):
        others = [f"B-{kind}", *_both_modes(NODES)]
        rises = [ClaimCase(f"to {other}", builder.rise_difference(f"R-{kind}", other, DELAY)) for other in others]
        word = "with map" if kind == ROADS else "without map"
        text = f"the delay of rendezvous {word} rises most with speed: more than that of broker {word} and of AODV"
        yield builder.claim(builder.figure("delay"), text, rises, above=0.0)
    rivals = (*_both_modes(PLACES), f"R-{ROADS}")
    small = [ClaimCase(f"to {other}", builder.difference(BEST, other, DELAY)) for other in rivals]
    yield builder.claim(
        builder.figure("delay"), "broker with map takes the least time of the geographic schemes", small, below=0.0
    )


def check_load(builder: "TopicHolderClaims") -> Iterator[Claim]:
    """[003 §5] Figures 4(c) and 5(c)."""
    much = [
        ClaimCase(f"{mode}-{kind} to {mode}-{NODES}", builder.ratio(f"{mode}-{kind}", f"{mode}-{NODES}", LOAD))
        for mode in MODES
        for kind in (PLACES, ROADS)
    ]
    yield builder.claim(
        builder.figure("load"), f"geographic sends {MUCH:g} times what AODV sends, or more (ratio)", much, at_least=MUCH
    )
    for kind in (PLACES, ROADS):
        reason = [
            ClaimCase(NAMES[mode], builder.share_of_difference(f"{mode}-{kind}", f"{mode}-{NODES}", BEACONS))
            for mode in MODES
        ]
        word = "with map" if kind == ROADS else "without map"
        text = f"beacons are more than half of what geographic {word} sends more than AODV (share)"
        yield builder.claim(builder.figure("load"), text, reason, above=MOST)
    less = [ClaimCase(kind, builder.ratio(f"B-{kind}", f"R-{kind}", LOAD)) for kind in KINDS]
    yield builder.claim(
        builder.figure("load"), "broker sends less than rendezvous, with each router (ratio)", less, below=1.0
    )


def check_expectation(builder: "TopicHolderClaims") -> Iterator[Claim]:
    """[003 §3.2.2] expects of rendezvous the advantages that section 5 finds for brokers."""
    note = "section 3.2.2, against section 5"
    less = [ClaimCase(kind, builder.ratio(f"R-{kind}", f"B-{kind}", LOAD)) for kind in KINDS]
    text = "rendezvous tends to send less than broker (ratio)"
    yield builder.claim(builder.figure("load"), text, less, below=1.0, note=note)
    sooner = [ClaimCase(kind, builder.difference(f"R-{kind}", f"B-{kind}", DELAY)) for kind in KINDS]
    yield builder.claim(
        builder.figure("delay"), "rendezvous tends to take less time than broker", sooner, below=0.0, note=note
    )


def check_proximity(builder: "TopicHolderClaims") -> Iterator[Claim]:
    """[003 §3.5] Without K holders change, and events are delivered "to only partial set of interested subscribers"."""
    speeds = builder.speeds_of(f"B-{ROADS}, {WITHOUT_K}")
    more, whole = [], []
    for mode in MODES:
        scheme = f"{mode}-{ROADS}"
        bare = f"{scheme}, {WITHOUT_K}"
        more.append(ClaimCase(NAMES[mode], builder.difference(scheme, bare, DELIVERY, *speeds)))
        whole.append(
            ClaimCase(
                NAMES[mode], confidence_interval(builder.wholeness_gain(scheme, bare, speeds), DIFFERENCE_OF_SHARES)
            )
        )
    yield builder.claim("proximity", "with K more is delivered, in both modes", more, above=0.0)
    text = "without K events reach fewer of their subscribers (share of subscribers of events that reached anybody)"
    yield builder.claim("proximity", text, whole, above=0.0)


def check_beyond(builder: "TopicHolderClaims") -> Iterator[Claim]:
    """Check the extensions of the paper."""
    same = [ClaimCase("", builder.difference(EXTENDED, BEST, DELIVERY))]
    text = "extended delivers at least as much as broker with map"
    yield builder.claim(builder.figure("delivery"), text, same, at_least=0.0, tolerance=NO_WORSE)
    less = [ClaimCase("", builder.ratio(EXTENDED, BEST, LOAD))]
    yield builder.claim(builder.figure("load"), "extended sends less than broker with map (ratio)", less, below=1.0)


def _both_modes(kind: str) -> tuple[str, str]:
    return f"R-{kind}", f"B-{kind}"


class TopicHolderClaims(ClaimBuilder):
    """Builds claims about one setting. Without a speed, a value is the mean over all speeds, by seed."""

    def __init__(self, results: Results, setting: str) -> None:
        super().__init__(results)
        self.setting = setting
        self.speeds = self.speeds_of(BEST)

    def figure(self, name: str) -> str:
        """The name of one of the setting's own figures."""
        return f"{self.setting}-{name}"

    def full_statement(self, statement: str) -> str:
        """The statement after the name of the setting."""
        return f"{self.setting}: {statement}"

    def speeds_of(self, scheme: str) -> list[str]:
        """The speeds at which a scheme has runs."""
        there = self.results.points({"setting": self.setting, "scheme": scheme})
        present = {point.labels["speed"] for point in there}
        return [label for label in self.results.experiment.labels("speed") if label in present]

    def by_seed(self, scheme: str, metric: str, *speeds: str) -> dict[int, float]:
        """Return the mean of a metric over speeds, by seed; seeds without a value are left out."""
        chosen: Selector = {"setting": self.setting, "scheme": scheme, "speed": list(speeds or self.speeds)}
        return self.select(chosen, metric)

    def values(self, scheme: str, metric: str, *speeds: str) -> list[float]:
        """Return the values of `by_seed`."""
        return list(self.by_seed(scheme, metric, *speeds).values())

    def difference(self, left: str, right: str, metric: str, *speeds: str) -> Interval:
        """The mean of left - right, paired by seed."""
        return difference_interval(self.by_seed(left, metric, *speeds), self.by_seed(right, metric, *speeds), metric)

    def ratio(self, left: str, right: str, metric: str) -> Interval:
        """The mean of left / right, paired by seed."""
        return ratio_of_seeds(self.by_seed(left, metric), self.by_seed(right, metric))

    def rise_difference(self, left: str, right: str, metric: str) -> Interval:
        """The difference of two schemes' rises from the lowest to the highest speed; empty if there is only one
        speed."""
        slow, fast = self.speeds[0], self.speeds[-1]
        ends = [self.by_seed(scheme, metric, speed) for scheme in (left, right) for speed in (fast, slow)]
        shared = [seed for seed in ends[0] if all(seed in end for end in ends)] if slow != fast else []
        return confidence_interval([ends[0][seed] - ends[1][seed] - (ends[2][seed] - ends[3][seed]) for seed in shared])

    def share_of_difference(self, left: str, right: str, part: str) -> Interval:
        """The share of one traffic class in the difference of two schemes' loads."""
        whole = [self.by_seed(scheme, LOAD) for scheme in (left, right)]
        parts = [self.by_seed(scheme, part) for scheme in (left, right)]
        seeds = [seed for seed in whole[0] if all(seed in found for found in (*whole, *parts))]
        return confidence_interval(
            [
                (parts[0][seed] - parts[1][seed]) / (whole[0][seed] - whole[1][seed])
                for seed in seeds
                if whole[0][seed] != whole[1][seed]
            ]
        )

    def share_led(self, scheme: str, metric: str) -> list[float]:
        """Return, for each seed, the share of speeds at which no other of the six schemes has more."""
        led: dict[int, list[bool]] = {}
        for speed in self.speeds:
            found = {each: self.by_seed(each, metric, speed) for each in SIX}
            for seed, value in found[scheme].items():
                rivals = [found[each][seed] for each in SIX if each != scheme and seed in found[each]]
                led.setdefault(seed, []).append(len(rivals) == len(SIX) - 1 and value >= max(rivals))
        return [sum(leads) / len(leads) for leads in led.values()]

    def wholeness_gain(self, scheme: str, bare: str, speeds: Sequence[str]) -> list[float]:
        """Return, for each seed, the gain in the share of subscribers reached by events that reached any."""
        sides = [self._wholeness(each, speeds) for each in (scheme, bare)]
        return [sides[0][seed] - sides[1][seed] for seed in sides[0] if seed in sides[1]]

    def _wholeness(self, scheme: str, speeds: Sequence[str]) -> dict[int, float]:
        # All events of a setting have equally many eligible subscribers, so shares of pairs are shares of subscribers.
        found = [self.by_seed(scheme, metric, *speeds) for metric in (DELIVERY, "published", "events_reached")]
        ratio, published, reached = found
        return {
            seed: ratio[seed] * published[seed] / reached[seed]
            for seed in ratio
            if seed in published and reached.get(seed)
        }
