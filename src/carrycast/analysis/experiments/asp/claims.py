"""Claims about single runs: the share that lost few messages, the second mode of losses, the cost of a broken path."""

import math
from collections.abc import Iterator, Sequence

from carrycast.analysis.spark import (
    SHARE,
    Claim,
    Results,
    Selector,
    confidence_interval,
    decide,
    make_claim,
    ratio_confidence_interval,
)

SENT = 100
SINKS = ("sink_0", "sink_1")
VALIDITIES_S = (10, 20, 50, 100)
FEW = 6
"""The paper: "for most runs less than 6 messages are lost"."""
BEYOND = 3
"""The paper: "x or a few more messages are missed". One less if the announcement came and the subscription failed."""
LOAD_TOLERANCE = 0.2
"""The paper gives 30, 10 and 5 kB, each with one digit."""
BREAK_TOLERANCE = 0.25
"""The paper has one example of each kind and no number."""


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims that are not about means."""
    present = results.experiment.labels("setting")
    validities_s = [validity_s for validity_s in VALIDITIES_S if f"{validity_s} s" in present]
    if "flooding" in present:
        yield check_all_received(results)
    for validity_s in validities_s:
        yield check_few_lost(results, validity_s)
    for validity_s in validities_s:
        yield check_second_mode(results, validity_s)
    if 100 in validities_s:
        for radio in results.experiment.labels("radio"):
            yield check_one_loss(results, radio)
        yield check_paths_break(results)
        yield check_one_suffices(results)
    loads_kb = {"flooding": 30.0, "10 s": 10.0, "100 s": 5.0}
    for setting, paper_kb in loads_kb.items():
        if setting in present:
            yield check_load(results, setting, setting if setting == "flooding" else f"ASP at {setting}", paper_kb)
    for validity_s, paper in ((10, 3.0), (100, 6.0)):
        if validity_s in validities_s:
            yield check_load_ratio(results, validity_s, paper)
    if {10, 100} <= set(validities_s):
        yield check_by_validity(results)


def check_all_received(results: Results) -> Claim:
    """Check the share of runs and sinks that received all messages by flooding. The fit was to the mean."""
    names = [f"received_by_{sink}" for sink in SINKS]
    shares = [sum(got == SENT for got in run) / len(run) for run in _runs(results, "flooding", *names)]
    found = confidence_interval(shares, SHARE)
    return make_claim(
        results,
        "completeness",
        f"Flooding: most runs deliver all {SENT} messages",
        found,
        decide(found, ">", 0.5),
        note="share of runs and sinks",
        paper="most",
    )


def check_few_lost(results: Results, validity_s: int) -> Claim:
    """Check the share of runs and sinks that lost few messages. The two sinks of a run are one observation."""
    shares = []
    for run in _runs(results, f"{validity_s} s", *(f"received_by_{sink}" for sink in SINKS)):
        shares.append(sum(SENT - received < FEW for received in run) / len(run))
    found = confidence_interval(shares, SHARE)
    return make_claim(
        results,
        "completeness",
        f"ASP at {validity_s} s: in most runs fewer than {FEW} of {SENT} messages are lost",
        found,
        decide(found, ">", 0.5),
        note="share of runs and sinks",
        paper="most",
    )


def check_second_mode(results: Results, validity_s: int) -> Claim:
    """Check that, per number of messages, more runs lost x - 1 to x + 3 messages than x / 2 to x - 2."""
    mode = range(validity_s - 1, min(validity_s + BEYOND, SENT) + 1)
    valley = range(validity_s // 2, validity_s - 1)
    excess: list[float] = []
    inside = 0
    for (received,) in _runs(results, f"{validity_s} s", "received_by_sink_1"):
        lost = SENT - round(received)
        inside += lost in mode
        excess.append((lost in mode) / len(mode) - (lost in valley) / len(valley))
    found = confidence_interval(excess)
    return make_claim(
        results,
        "histograms",
        f"ASP at {validity_s} s: losses at sink 1 have a second mode at {validity_s} messages or a few more",
        found,
        decide(found, ">", 0.0),
        note=f"share of runs per number of messages lost, {mode[0]} to {mode[-1]} less {valley[0]} to {valley[-1]}; "
        f"{inside} of {len(excess)} runs lie in the mode",
        paper=f"mode at {validity_s}",
    )


def check_one_loss(results: Results, radio: str) -> Claim:
    """Check the losses per broken path, in runs in which both sinks received every announcement."""
    names = [f"received_by_{sink}" for sink in SINKS] + [f"announcements_missed_by_{sink}" for sink in SINKS]
    lost, broken = [], []
    for first, second, missed, missed_too, breaks in _runs(results, "100 s", *names, "path_breaks", radio=radio):
        if not missed and not missed_too:
            lost.append(2 * SENT - first - second)
            broken.append(breaks)
    # On the disk radio only broken paths lose messages, so the measure is not random.
    found = ratio_confidence_interval(lost, broken, exact=radio == "disk")
    return make_claim(
        results,
        "single-runs",
        f"ASP at 100 s, {radio}: a broken path costs one message",
        found,
        decide(found, "=", 1.0, BREAK_TOLERANCE),
        note=f"messages lost at both sinks for each broken path, over the {len(lost)} runs in which no announcement "
        f"missed a sink; tolerance {BREAK_TOLERANCE:g}. Losses to paths that failed silently, by collisions, count too",
        paper=1.0,
    )


def check_paths_break(results: Results) -> Claim:
    """Check the share of runs in which the source announced again although its first announcement had not expired."""
    shares = [float(count > 1) for (count,) in _runs(results, "100 s", "announcements")]
    found = confidence_interval(shares, SHARE)
    return make_claim(
        results,
        "single-runs",
        "ASP at 100 s: in most runs a path breaks, so that there is more than one announcement",
        found,
        decide(found, ">", 0.5),
        note="share of runs; the paper names two that had one announcement",
        paper="most",
    )


def check_one_suffices(results: Results) -> Claim:
    """Check the losses in runs with one announcement that the sink received. Publications can still be lost."""
    names = ("announcements", "announcements_missed_by_sink_1", "received_by_sink_1")
    lost = [SENT - got for count, missed, got in _runs(results, "100 s", *names) if count == 1 and not missed]
    found = confidence_interval(lost, (0.0, SENT))
    return make_claim(
        results,
        "single-runs",
        "ASP at 100 s: without path failures one announcement suffices: less than one message is lost at sink 1",
        found,
        decide(found, "<", 1.0),
        note=f"messages lost in the {len(lost)} runs with one announcement, which came to the sink; < 1",
        paper=0.0,
    )


def check_load_ratio(results: Results, validity_s: int, paper: float) -> Claim:
    """Check the ratio of the loads of flooding and ASP, paired by run on the same movement."""
    flooding, asp = _loads(results, "flooding", f"{validity_s} s")
    found = ratio_confidence_interval(flooding, asp)
    return make_claim(
        results,
        "load",
        f"Flooding sends about {paper:g} times what ASP at {validity_s} s sends",
        found,
        decide(found, "=", paper, paper * LOAD_TOLERANCE),
        note=f"{_kilobytes(flooding)} against {_kilobytes(asp)} per node; tolerance {LOAD_TOLERANCE:.0%}",
        paper=paper,
    )


def check_load(results: Results, setting: str, name: str, paper_kb: float) -> Claim:
    """Check the mean load. It depends on the size of messages; the ratios do not (docs/results-asp.md)."""
    found = confidence_interval(results.select(_at(setting), "sent_per_node_bytes").values())
    paper = 1000 * paper_kb
    return make_claim(
        results,
        "load",
        f"{name}: every node sends about {paper_kb:g} kB",
        found,
        decide(found, "=", paper, paper * LOAD_TOLERANCE),
        note=f"bytes; tolerance {LOAD_TOLERANCE:.0%}",
        paper=paper,
    )


def check_by_validity(results: Results) -> Claim:
    """Check that ten times the validity halves the load: 10 kB at 10 s, 5 kB at 100 s."""
    short, long = _loads(results, "10 s", "100 s")
    found = ratio_confidence_interval(short, long)
    return make_claim(
        results,
        "load",
        "The load of ASP at 10 s is about twice that at 100 s, and not ten times",
        found,
        decide(found, "=", 2.0, 2.0 * LOAD_TOLERANCE),
        note=f"{_kilobytes(short)} at 10 s over {_kilobytes(long)} at 100 s; tolerance {LOAD_TOLERANCE:.0%}",
        paper=2.0,
    )


def _loads(results: Results, *settings: str) -> tuple[list[float], list[float]]:
    """Return the loads of two settings over the seeds that both have."""
    first, second = (results.select(_at(setting), "sent_per_node_bytes") for setting in settings)
    pairs = [(one, other) for seed, one in first.items() if one is not None and (other := second.get(seed)) is not None]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _kilobytes(values: Sequence[float]) -> str:
    return f"{math.fsum(values) / max(1, len(values)) / 1000:.1f} kB"


def _at(setting: str, radio: str = "802.11b") -> Selector:
    return {"radio": radio, "range": 177.0, "setting": setting}


def _runs(results: Results, setting: str, *metrics: str, radio: str = "802.11b") -> Iterator[tuple[float, ...]]:
    """Yield several metrics of each run that has all of them."""
    columns = [results.select(_at(setting, radio), metric) for metric in metrics]
    for seed in columns[0]:
        values = [column.get(seed) for column in columns]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            yield tuple(known)
