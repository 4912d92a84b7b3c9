"""Builds the claims of the policy experiment. A point is given by the labels in which it differs from the default."""

from collections.abc import Iterator, Mapping, Sequence

from carrycast.analysis.experiments.claim_builder import ClaimBuilder, difference_interval, ratio_of_seeds
from carrycast.analysis.spark import (
    Claim,
    ClaimCase,
    Interval,
    Point,
    Results,
    confidence_interval,
    label_text,
    metric_bounds,
)
from carrycast.sim.scenario import LinkCuts, Scenario, draw_roles

Where = Mapping[str, str]

PUBLISH, REQUEST, RESPONSE, RESPONDED = FOUR = ("publish_ratio", "request_ratio", "response_ratio", "responded_ratio")
WAYS = (REQUEST, RESPONDED)
"""The ratios that depend on repositories, and below those that failed links reduce."""
LOST = (PUBLISH, REQUEST, RESPONDED)
ONE, TWO = "one", "two"
BOTH = (ONE, TWO)
TESTBED = {"failures": "nodes", "brokers": "6", "interval": "90", "recovery": "4", "rate": "0.17"}
QUIET = {"failures": "none", "brokers": "6"}
SENT, CONTROL = "sent_bytes_per_node_s", "control_bytes"
WHOLE = 0.001
"""Everything counts as delivered if no more than one in a thousand is missing."""
BETTER = 0.1
"""[000 §VI] "at least 10% better"."""


class PolicyClaims(ClaimBuilder):
    """Builds claims about points. A point is given by the labels in which it differs from the default."""

    def __init__(self, results: Results) -> None:
        super().__init__(results)
        axes = results.experiment.definition.axes
        self.defaults = {axis.name: label_text(axis.default) for axis in axes if axis.default is not None}
        self._points = {tuple(sorted(point.labels.items())): point for point in results.experiment.points}

    def point(self, where: Where) -> Point | None:
        """Return the point that differs from the default in these labels; None if it was not run."""
        return self._points.get(tuple(sorted({**self.defaults, **where}.items())))

    def along(self, axis: str, where: Where) -> list[str]:
        """Return the labels of an axis at which there is a point, given the other labels."""
        labels = self.results.experiment.labels(axis)
        return [label for label in labels if self.point({**where, axis: label}) is not None] or labels[:1]

    def by_seed(self, metric: str, where: Where) -> dict[int, float]:
        """Return a metric at a point, by seed; seeds without a value are left out."""
        point = self.point(where)
        found = {} if point is None else self.results.by_seed(point, metric)
        return {seed: value for seed, value in found.items() if value is not None}

    def columns(
        self, metric: str, axis: str, labels: Sequence[str], count: str, **where: str
    ) -> list[dict[int, float]]:
        """Return a metric by seed for each label of an axis."""
        return [self.by_seed(metric, {**where, axis: label, "repositories": count}) for label in labels]

    def mean(self, metric: str, where: Where, exact: bool = False) -> Interval:
        """The mean of a metric over the seeds of a point."""
        return confidence_interval(self.by_seed(metric, where).values(), metric_bounds(metric), exact)

    def difference(self, metric: str, left: Where, right: Where, count: str = "", exact: bool = False) -> Interval:
        """The mean of left - right, paired by seed, with `count` repositories on both sides."""
        return difference_interval(*self._sides(metric, left, right, count), metric, exact)

    def ratio(self, metric: str, left: Where, right: Where, count: str = "") -> Interval:
        """The mean of left / right, paired by seed."""
        return ratio_of_seeds(*self._sides(metric, left, right, count))

    def _sides(self, metric: str, left: Where, right: Where, count: str) -> tuple[dict[int, float], dict[int, float]]:
        of = {"repositories": count} if count else {}
        return self.by_seed(metric, {**of, **left}), self.by_seed(metric, {**of, **right})

    def scenario(self, where: Where) -> Scenario | None:
        """Return the scenario of a point; None if it was not run."""
        point = self.point(where)
        return None if point is None else point.scenario

    @staticmethod
    def places(scenario: Scenario, role: str, seed: int) -> list[int]:
        """Return the nodes that have a role in the run of a seed."""
        return draw_roles(scenario.roles, scenario.nodes, seed, scenario.name)[role]

    @staticmethod
    def cuts(scenario: Scenario) -> tuple[float, float, float]:
        """Return the interval between failures of links, their duration, and the time of the last."""
        (fault,) = scenario.faults
        assert isinstance(fault, LinkCuts)
        return fault.every_s, fault.for_s, scenario.duration_s if fault.to_s is None else fault.to_s


def compare_repositories(
    builder: "PolicyClaims",
    figure: str,
    name: str,
    points: Mapping[str, Where],
    *,
    two: str = TWO,
    one: str = ONE,
    scheme: str = "paper",
) -> Iterator[Claim]:
    """Claim that two repositories deliver more than one, by a tenth, in both readings of "10% better".

    `points` are the points at which they are compared, by a name; `two` and `one` are the labels of the two sides.
    """
    sides = [
        (
            f"{metric} {label}".strip(),
            metric,
            {**where, "repositories": two, "scheme": scheme},
            {**where, "repositories": one},
        )
        for metric in WAYS
        for label, where in points.items()
    ]
    more = [ClaimCase(label, builder.difference(metric, left, right)) for label, metric, left, right in sides]
    times = [ClaimCase(label, builder.ratio(metric, left, right)) for label, metric, left, right in sides]
    yield builder.claim(figure, f"{name}: two repositories deliver more than one", more, above=0.0)
    yield builder.claim(figure, f"{name}: two deliver {BETTER:g} more (absolute)", more, at_least=BETTER)
    yield builder.claim(
        figure, f"{name}: two deliver {1 + BETTER:g} times as much (relative)", times, at_least=1 + BETTER
    )
