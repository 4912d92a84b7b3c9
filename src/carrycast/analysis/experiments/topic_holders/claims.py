"""What paper 003 says of its Figures 4 and 5, in words: orders of schemes, held against paired differences.

Tolerances stand here, so before the runs.
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
"""A delivery is "far above" another if it is by so much: a fifth of all pairs."""
MUCH = 2.0
"""Load is "much more" if it is so many times as much."""
MOST = 0.5
"""Of settings, and of what makes a difference: more than half."""
LOW_S = 0.5
"""A delay is low below this: half of what a refresh of a subscription takes to be due again."""
NO_WORSE = 0.01
"""At least as much is delivered if no more than this is lost: a hundredth of all pairs."""

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
    """Setting by setting, figure by figure."""
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
    """[003 §3.2.2] expects of rendezvous what section 5 finds of brokers."""
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
    """What goes beyond the paper."""
    same = [ClaimCase("", builder.difference(EXTENDED, BEST, DELIVERY))]
    text = "extended delivers at least as much as broker with map"
    yield builder.claim(builder.figure("delivery"), text, same, at_least=0.0, tolerance=NO_WORSE)
    less = [ClaimCase("", builder.ratio(EXTENDED, BEST, LOAD))]
    yield builder.claim(builder.figure("load"), "extended sends less than broker with map (ratio)", less, below=1.0)


def _both_modes(kind: str) -> tuple[str, str]:
    return f"R-{kind}", f"B-{kind}"


class TopicHolderClaims(ClaimBuilder):
    """The claims about the runs of one setting. Without a speed, a value is the mean over all speeds, seed by seed."""

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
        """A metric, the mean over speeds; seeds without a value are left out."""
        chosen: Selector = {"setting": self.setting, "scheme": scheme, "speed": list(speeds or self.speeds)}
        return self.select(chosen, metric)

    def values(self, scheme: str, metric: str, *speeds: str) -> list[float]:
        """The same without the seeds."""
        return list(self.by_seed(scheme, metric, *speeds).values())

    def difference(self, left: str, right: str, metric: str, *speeds: str) -> Interval:
        """left - right, seed by seed."""
        return difference_interval(self.by_seed(left, metric, *speeds), self.by_seed(right, metric, *speeds), metric)

    def ratio(self, left: str, right: str, metric: str) -> Interval:
        """left / right, seed by seed."""
        return ratio_of_seeds(self.by_seed(left, metric), self.by_seed(right, metric))

    def rise_difference(self, left: str, right: str, metric: str) -> Interval:
        """How much more one rises than another, from the lowest speed to the highest; nothing with one speed alone."""
        slow, fast = self.speeds[0], self.speeds[-1]
        ends = [self.by_seed(scheme, metric, speed) for scheme in (left, right) for speed in (fast, slow)]
        shared = [seed for seed in ends[0] if all(seed in end for end in ends)] if slow != fast else []
        return confidence_interval([ends[0][seed] - ends[1][seed] - (ends[2][seed] - ends[3][seed]) for seed in shared])

    def share_of_difference(self, left: str, right: str, part: str) -> Interval:
        """How much of what one sends more than another is of one class: by that much the class differs."""
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
        """For each seed, the share of speeds at which no other of the six has more."""
        led: dict[int, list[bool]] = {}
        for speed in self.speeds:
            found = {each: self.by_seed(each, metric, speed) for each in SIX}
            for seed, value in found[scheme].items():
                rivals = [found[each][seed] for each in SIX if each != scheme and seed in found[each]]
                led.setdefault(seed, []).append(len(rivals) == len(SIX) - 1 and value >= max(rivals))
        return [sum(leads) / len(leads) for leads in led.values()]

    def wholeness_gain(self, scheme: str, bare: str, speeds: Sequence[str]) -> list[float]:
        """By seed: of the events that reached anybody, how many more of their subscribers they reached."""
        sides = [self._wholeness(each, speeds) for each in (scheme, bare)]
        return [sides[0][seed] - sides[1][seed] for seed in sides[0] if seed in sides[1]]

    def _wholeness(self, scheme: str, speeds: Sequence[str]) -> dict[int, float]:
        # All events of a setting have as many eligible subscribers, so shares of pairs are shares of subscribers.
        found = [self.by_seed(scheme, metric, *speeds) for metric in (DELIVERY, "published", "events_reached")]
        ratio, published, reached = found
        return {
            seed: ratio[seed] * published[seed] / reached[seed]
            for seed in ratio
            if seed in published and reached.get(seed)
        }
