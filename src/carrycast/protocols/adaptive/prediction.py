"""What a node is worth as a carrier: a predictor for each context attribute, and their weighted sum [004 §3]."""

from carrycast.core.parts.interests import EVERYTHING
from carrycast.core.parts.kalman import LevelFilter, ResidualMonitor, steady_variance
from carrycast.protocols.adaptive.context import attributes
from carrycast.protocols.adaptive.context.attribute import HostAttribute, InterestAttribute, Surroundings
from carrycast.protocols.adaptive.rules import composed
from carrycast.protocols.adaptive.settings import AdaptiveSettings

FORGOTTEN = 0.01
"""A prediction for an interest below this is let go, so that an interest without subscribers is one day no longer
known. It changes a utility by less than a hundredth."""


class Series:
    """One attribute over time: its filter, and whether that has been right."""

    __slots__ = ("filter", "monitor")

    def __init__(self, filter: LevelFilter) -> None:
        self.filter = filter
        self.monitor = ResidualMonitor()

    def observe(self, value: float) -> None:
        """The value of this period."""
        self.monitor.add(self.filter.observe(value))


class Predictions:
    """The predictors of one node. An attribute without weight is not even observed."""

    def __init__(self, settings: AdaptiveSettings) -> None:
        self._settings = settings
        self._host: dict[str, HostAttribute] = {}
        self._interest: dict[str, InterestAttribute] = {}
        for name, kind in attributes().items():
            if settings.weights.get(name, 0.0) > 0:
                attribute = kind()
                if isinstance(attribute, HostAttribute):
                    self._host[name] = attribute
                elif isinstance(attribute, InterestAttribute):
                    self._interest[name] = attribute
        self._host_series: dict[str, Series] = {}
        self._interest_series: dict[str, dict[str, Series]] = {name: {} for name in self._interest}
        self._samples = 0
        self._host_reliable = True
        self._unreliable: set[str] = set()
        self.worth: dict[str, float] = {EVERYTHING: 0.0}
        """The utility as a carrier by interest; the filter that matches everything stands for all without an entry."""

    def sample(self, around: Surroundings) -> None:
        """A period has passed: observe, and predict the next."""
        self._samples += 1
        for name, attribute in self._host.items():
            self._sample_host(name, attribute.observe(around))
        for name, per_interest in self._interest.items():
            self._sample_interests(self._interest_series[name], per_interest.observe(around))
        self._weigh()
        if self._settings.predictability:
            self._judge()

    def utility(self, interest: str) -> float:
        """The node's utility as a carrier for an interest."""
        utility = self.worth.get(interest)
        return self.worth[EVERYTHING] if utility is None else utility

    def reliable(self, interests: list[str]) -> bool:
        """[004 §4] Whether predictions may be used for an event of these interests.

        Not if one of the node's own attributes, or an interest's in the case of all that are observed, has been
        predicted badly.
        """
        if not self._host_reliable:
            return False
        unreliable = self._unreliable
        if not unreliable:
            return True
        observed = [interest for interest in interests if interest in self.worth and interest != EVERYTHING]
        return not observed or any(interest not in unreliable for interest in observed)

    def _sample_host(self, name: str, value: float | None) -> None:
        series = self._host_series.get(name)
        if series is not None:
            if value is None:
                series.filter.skip()
            else:
                series.observe(value)
        elif value is not None:
            self._host_series[name] = Series(LevelFilter(value, self._settings.drift, self._settings.noise))

    def _sample_interests(self, known: dict[str, Series], observed: dict[str, float]) -> None:
        for interest in list(known):
            series = known[interest]
            value = observed.pop(interest, 0.0)
            series.observe(value)
            if value == 0.0 and series.filter.level < FORGOTTEN:
                del known[interest]
        for interest, value in observed.items():
            known[interest] = self._new_series(value)

    def _new_series(self, value: float) -> Series:
        """The first value of an interest that counts. Before it there were zeros, unless the node is new itself."""
        drift, noise = self._settings.drift, self._settings.noise
        if self._samples == 1:
            return Series(LevelFilter(value, drift, noise))
        filter = LevelFilter(0.0, drift, noise)
        filter.variance = steady_variance(drift, noise)
        series = Series(filter)
        series.observe(value)
        return series

    def _weigh(self) -> None:
        """[004 §3, eq. 3] The same sum for each interest; what all interests share is summed once."""
        weights = self._settings.weights
        floor = composed(weights, {name: series.filter.level for name, series in self._host_series.items()})
        worth = {EVERYTHING: min(1.0, floor)}
        for name, known in self._interest_series.items():
            weight = weights[name]
            for interest, series in known.items():
                worth[interest] = min(1.0, worth.get(interest, floor) + weight * series.filter.level)
        self.worth = worth

    def _judge(self) -> None:
        bounds = (self._settings.error_max, self._settings.bias_max, self._settings.accurate)
        self._host_reliable = all(series.monitor.is_reliable(*bounds) for series in self._host_series.values())
        self._unreliable = {
            interest
            for known in self._interest_series.values()
            for interest, series in known.items()
            if not series.monitor.is_reliable(*bounds)
        }
