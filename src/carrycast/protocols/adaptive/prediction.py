"""Prediction of the utility as a carrier: one predictor for each context attribute, and their weighted sum [004 §3]."""

from carrycast.core.parts import EVERYTHING, LevelFilter, ResidualMonitor, steady_variance
from carrycast.protocols.adaptive.context import ATTRIBUTES, HostAttribute, InterestAttribute, ObservedContext
from carrycast.protocols.adaptive.rules import weighted_sum
from carrycast.protocols.adaptive.settings import AdaptiveSettings

NEGLIGIBLE = 0.01
"""A prediction for an interest below this is removed, so that an interest without subscribers is forgotten in the end.
It changes a utility by less than a hundredth."""

# [004 §4] requires a test of the residuals and gives no thresholds. Values are shares from 0 to 1.
MAX_ERROR = 0.35
"""The largest root mean square residual of a reliable prediction; a constant guess of 0.5 has up to 0.5."""
MAX_BIAS = 0.1
"""The largest mean residual: a prediction that is off by a tenth in one direction misses a trend."""
ACCURATE = 0.05
"""Predictions with a smaller root mean square residual are reliable whatever the other tests say."""


class AttributeSeries:
    """One attribute over time: its Kalman filter, and the monitor of the filter's residuals."""

    __slots__ = ("filter", "monitor")

    def __init__(self, filter: LevelFilter) -> None:
        self.filter = filter
        self.monitor = ResidualMonitor()

    def observe(self, value: float) -> None:
        """Pass the value of this period to the filter."""
        self.monitor.add(self.filter.observe(value))


class CarrierPredictor:
    """The predictors of one node. An attribute without weight is not observed."""

    def __init__(self, settings: AdaptiveSettings) -> None:
        self._settings = settings
        self._host: dict[str, HostAttribute] = {}
        self._interest: dict[str, InterestAttribute] = {}
        for name, kind in ATTRIBUTES.items():
            if settings.weights.get(name, 0.0) > 0:
                attribute = kind()
                if isinstance(attribute, HostAttribute):
                    self._host[name] = attribute
                elif isinstance(attribute, InterestAttribute):
                    self._interest[name] = attribute
        self._host_series: dict[str, AttributeSeries] = {}
        self._interest_series: dict[str, dict[str, AttributeSeries]] = {name: {} for name in self._interest}
        self._samples = 0
        self._host_reliable = True
        self._unreliable: set[str] = set()
        self.utilities: dict[str, float] = {EVERYTHING: 0.0}
        """The utility as a carrier by interest; the filter that matches everything stands for all interests without an
        entry."""

    def sample(self, context: ObservedContext) -> None:
        """Observe the attributes at the end of a period, and predict the next period."""
        self._samples += 1
        for name, attribute in self._host.items():
            self._sample_host(name, attribute.observe(context))
        for name, per_interest in self._interest.items():
            self._sample_interests(self._interest_series[name], per_interest.observe(context))
        self._update_utilities()
        if self._settings.predictability:
            self._check_reliability()

    def utility(self, interest: str) -> float:
        """The node's utility as a carrier for an interest."""
        utility = self.utilities.get(interest)
        return self.utilities[EVERYTHING] if utility is None else utility

    def are_reliable(self, interests: list[str]) -> bool:
        """[004 §4] Whether predictions may be used for an event of these interests.

        They may not if an attribute of the node itself was predicted badly, or if an attribute of every observed
        interest was.
        """
        if not self._host_reliable:
            return False
        unreliable = self._unreliable
        if not unreliable:
            return True
        observed = [interest for interest in interests if interest in self.utilities and interest != EVERYTHING]
        return not observed or any(interest not in unreliable for interest in observed)

    def _sample_host(self, name: str, value: float | None) -> None:
        series = self._host_series.get(name)
        if series is not None:
            if value is None:
                series.filter.skip()
            else:
                series.observe(value)
        elif value is not None:
            self._host_series[name] = AttributeSeries(LevelFilter(value, self._settings.drift, self._settings.noise))

    def _sample_interests(self, known: dict[str, AttributeSeries], observed: dict[str, float]) -> None:
        for interest in list(known):
            series = known[interest]
            value = observed.pop(interest, 0.0)
            series.observe(value)
            if value == 0.0 and series.filter.level < NEGLIGIBLE:
                del known[interest]
        for interest, value in observed.items():
            known[interest] = self._new_series(value)

    def _new_series(self, value: float) -> AttributeSeries:
        """The series of an interest that is observed for the first time. The values before it were zero, unless the
        node itself is new."""
        drift, noise = self._settings.drift, self._settings.noise
        if self._samples == 1:
            return AttributeSeries(LevelFilter(value, drift, noise))
        filter = LevelFilter(0.0, drift, noise)
        filter.variance = steady_variance(drift, noise)
        series = AttributeSeries(filter)
        series.observe(value)
        return series

    def _update_utilities(self) -> None:
        """[004 §3, eq. 3] The weighted sum for each interest; the part that all interests share is computed once."""
        weights = self._settings.weights
        floor = weighted_sum(weights, {name: series.filter.level for name, series in self._host_series.items()})
        utilities = {EVERYTHING: min(1.0, floor)}
        for name, known in self._interest_series.items():
            weight = weights[name]
            for interest, series in known.items():
                utilities[interest] = min(1.0, utilities.get(interest, floor) + weight * series.filter.level)
        self.utilities = utilities

    def _check_reliability(self) -> None:
        bounds = (MAX_ERROR, MAX_BIAS, ACCURATE)
        self._host_reliable = all(series.monitor.is_reliable(*bounds) for series in self._host_series.values())
        self._unreliable = {
            interest
            for known in self._interest_series.values()
            for interest, series in known.items()
            if not series.monitor.is_reliable(*bounds)
        }
