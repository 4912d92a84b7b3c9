"""How often the intervals of `carrycast.analysis.spark.statistics` cover the true mean, and how often chance decides
a claim, at one look or at several.

`python -m benchmarks.coverage` prints the tables of docs/statistics.md.
"""

import math
import sys
from collections.abc import Sequence
from random import Random
from statistics import NormalDist
from typing import NamedTuple

from carrycast.analysis.spark.claims import decide, holm_decisions
from carrycast.analysis.spark.sequential import plan_looks, sequential_chance
from carrycast.analysis.spark.statistics import CONFIDENCE, confidence_interval, t_quantile

RUNS = (5, 10, 20)
LOOKED_AT = (10, 20, 100)
"""The largest numbers of runs of experiments that stop when their claims are decided."""
TRIES = 20_000
CLAIMS = 20
"""Comparisons of one experiment, without a difference in any."""


def _quantiles(of: NormalDist, steps: int = 100) -> list[float]:
    return [of.inv_cdf((step + 0.5) / steps) for step in range(steps)]


# Median delays are those of 300 runs of gossip in two settings of the baselines, by their shares.
POPULATIONS: dict[str, list[float]] = {
    "median delay, gossip 0.5, dense": [0.002] * 87 + [0.003] * 13,
    "median delay, gossip 0.7, sparse": [0.001] * 33 + [0.0015] * 4 + [0.002] * 62 + [0.003],
    "delivery near one: 9 of 100 runs lose some": [1.0] * 91 + [0.99, 0.985, 0.98, 0.97, 0.96, 0.95, 0.93, 0.9, 0.85],
    "normal": _quantiles(NormalDist()),
    "lognormal, sigma 0.5": [math.exp(0.5 * x) for x in _quantiles(NormalDist())],
    "lognormal, sigma 1": [math.exp(x) for x in _quantiles(NormalDist())],
}


class Coverage(NamedTuple):
    """Shares of the tries in which runs were not all alike."""

    shown: float
    """That of tries that show an interval at all."""
    student: float
    covered: float
    length: float
    """Of Student's interval, on average."""


def coverage(population: Sequence[float], runs: int, tries: int, rng: Random) -> Coverage:
    """Draw runs again and again, and see whether the interval has the mean of all."""
    mean = math.fsum(population) / len(population)
    shown = student = covered = 0
    length = 0.0
    for _ in range(tries):
        found = confidence_interval(rng.choices(population, k=runs))
        if found.low is None or found.high is None or found.mean is None or found.error is None:
            continue
        half = t_quantile(runs - 1) * found.error
        shown += 1
        student += abs(found.mean - mean) <= half
        covered += found.low <= mean <= found.high
        length += (found.high - found.low) / (2 * half)
    return Coverage(shown / tries, student / shown, covered / shown, length / shown)


def decided_by_chance(experiments: int, runs: int, rng: Random) -> tuple[float, float]:
    """The shares of experiments in which some claim is decided, of those with no difference: alone, and together."""
    alone = together = 0
    for _ in range(experiments):
        found = [decide(confidence_interval(rng.gauss(0, 1) for _ in range(runs)), ">", 0.0) for _ in range(CLAIMS)]
        alone += any(decision.holds is not None for decision in found)
        together += any(holm_decisions([decision.chance for decision in found]))
    return alone / experiments, together / experiments


class Repeated(NamedTuple):
    """Shares of the tries in which a true mean was decided against at some look."""

    uncorrected: float
    """One claim, tested at 5 % at every look."""
    corrected: float
    """One claim, as carrycast tests it."""
    together: float
    """One of several claims, as carrycast tests them together."""
    once: float
    """One of several claims, tested together at the last look only."""


def decided_at_looks(population: Sequence[float], most: int, tries: int, rng: Random) -> Repeated:
    """Look at claims about the true mean again and again, up to so many runs each."""
    mean = math.fsum(population) / len(population)
    looks = plan_looks(most)
    uncorrected = corrected = together = once = 0
    for _ in range(tries):
        best: list[float | None] = []
        last: list[float | None] = []
        for _ in range(CLAIMS):
            runs = rng.choices(population, k=most)
            found = [decide(confidence_interval(runs[: look.runs]), "=", mean, 0.0).chance for look in looks]
            chances = [sequential_chance(p, look) for p, look in zip(found, looks, strict=True) if p is not None]
            uncorrected += any(p is not None for p in found)
            corrected += any(p <= 1 - CONFIDENCE for p in chances)
            best.append(min(chances, default=None))
            last.append(found[-1])
        together += any(holm_decisions(best))
        once += any(holm_decisions(last))
    return Repeated(uncorrected / tries / CLAIMS, corrected / tries / CLAIMS, together / tries, once / tries)


def main() -> int:
    """All tables."""
    lines = ["| values | runs | not all alike | Student's t covers | covered | length of Student's |", "|---" * 6 + "|"]
    for name, population in POPULATIONS.items():
        for runs in RUNS:
            found = coverage(population, runs, TRIES, Random(runs))
            shares = f"{found.shown:.0%} | {found.student:.1%} | {found.covered:.1%}"
            lines.append(f"| {name} | {runs} | {shares} | {found.length:.2f} |")
    lines += ["", f"| runs | one of {CLAIMS} decided alone | together |", "|---" * 3 + "|"]
    for runs in RUNS:
        alone, together = decided_by_chance(TRIES // 10, runs, Random(runs))
        lines.append(f"| {runs} | {alone:.1%} | {together:.1%} |")
    head = f"| values | most runs | uncorrected | one claim | one of {CLAIMS}, together | with one look |"
    lines += ["", head, "|---" * 6 + "|"]
    for name in ("normal", "lognormal, sigma 0.5", "lognormal, sigma 1"):
        for most in LOOKED_AT:
            rates = decided_at_looks(POPULATIONS[name], most, TRIES // 10, Random(most))
            shares = f"{rates.uncorrected:.1%} | {rates.corrected:.1%} | {rates.together:.1%} | {rates.once:.1%}"
            lines.append(f"| {name} | {most} | {shares} |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
