"""The advice as a Markdown page with a picture and tables."""

import base64
from collections.abc import Iterator
from pathlib import Path

from carrycast.analysis.advice.advisor import Advice, EvaluatedCandidate, training_means
from carrycast.analysis.reports import block_html, html_page, interval_texts
from carrycast.analysis.spark import Interval, write_atomically

TEXT = "advice.md"
PAGE = "index.html"
PICTURE = "pareto.png"
PICTURE_TEXT = "what each candidate gains at what cost"
_PICTURE_LINE = f"![{PICTURE_TEXT}]({PICTURE})"
SHOWN = ("delivery_ratio", "delay_p50_s", "delay_p95_s", "total_bytes", "transmissions", "buffer_peak")


def write_advice_page(advice: Advice, out: Path) -> Path:
    """Write the page as HTML and as Markdown, and its picture; return the path of the HTML page."""
    _draw(advice, out / PICTURE)
    text = "\n".join(_page_lines(advice)) + "\n"
    write_atomically(out / TEXT, text.encode())
    before, after = text.split(_PICTURE_LINE)
    image = base64.b64encode((out / PICTURE).read_bytes()).decode()
    figure = f'<figure class="wide"><img alt="{PICTURE_TEXT}" src="data:image/png;base64,{image}"></figure>'
    body = block_html(before) + figure + block_html(after)
    write_atomically(out / PAGE, html_page(f"Advice for {advice.scenario.name}", body).encode())
    return out / PAGE


def advice_sentences(advice: Advice) -> list[str]:
    """Sentences on the recommendation, whether it meets the objective, and what could be gained."""
    chosen, goal = advice.chosen, advice.objective.goal
    found = [f"Run {chosen.candidate.label}. On the held-out part, its {goal} is {_interval_text(chosen.means[goal])}."]
    for limit in advice.objective.limits:
        found.append(
            f"Its {limit.metric} is {_interval_text(chosen.means[limit.metric])}; the objective is {limit.text}."
        )
    kept = advice.keeps_limits(chosen)
    if kept is False:
        found.append("So it misses the objective. No other candidate came nearer on the training part.")
    elif kept is None:
        found.append("Whether it meets the objective is undecided, since the interval has values on both sides.")
    for other in advice.evaluated[1:]:
        found.append(_comparison_sentence(advice, other))
    delivery = chosen.means["delivery_ratio"].mean
    if advice.bound.delivery is not None and delivery is not None:
        bound = (
            f"No protocol can deliver more than {_number_text(advice.bound.delivery)} there, because no path of "
            "contacts reaches the other subscribers in time."
        )
        if advice.bound.delay_p50_s is not None:
            bound += f" Its median delay can be no less than {advice.bound.delay_p50_s:.3g} s."
        found.append(f"{bound} {_bound_sentence(advice, delivery, advice.bound.delivery)}")
    return found


def _bound_sentence(advice: Advice, delivery: float, bound: float) -> str:
    limits = [one for one in advice.objective.limits if one.metric == "delivery_ratio" and one.at_least]
    if limits and bound < limits[0].value:
        return "The objective needs more contacts: a longer range, longer leases, or more nodes that carry events."
    if bound - delivery < 0.01:
        return "Another protocol cannot deliver noticeably more."
    return f"Another protocol could deliver up to {bound - delivery:.3f} more."


def _comparison_sentence(advice: Advice, other: EvaluatedCandidate) -> str:
    goal = advice.objective.goal
    difference = other.differences[goal]
    label = other.candidate.label
    kept = "" if advice.keeps_limits(other) is not False else "; it misses the objective, too"
    if difference.mean is None:
        return f"{label} has no {goal} on the held-out part{kept}."
    if difference.low is None or difference.high is None or difference.low <= 0 <= difference.high:
        return f"{label} is as good: its {goal} differs by {_signed_text(difference)}{kept}."
    worse = (difference.mean > 0) == advice.objective.least
    return f"{label} is {'worse' if worse else 'better'}: its {goal} differs by {_signed_text(difference)}{kept}."


def _page_lines(advice: Advice) -> Iterator[str]:
    yield f"# Advice for {advice.scenario.name}"
    yield ""
    yield f"The objective: {advice.objective.text}. {advice.scenario.nodes} nodes; {advice.parts.how}."
    yield ""
    yield from (f"- {line}" for line in advice_sentences(advice))
    yield ""
    yield _PICTURE_LINE
    yield ""
    yield "## On the held-out part"
    yield ""
    yield from _table_lines([(one.candidate.label, one.means) for one in advice.evaluated])
    yield ""
    yield "Means with 95 % intervals. Differences to the first, seed by seed:"
    yield ""
    yield from _table_lines([(one.candidate.label, one.differences) for one in advice.evaluated[1:]], signed=True)
    yield ""
    yield "## On the training part"
    yield ""
    share = advice.search.runs / advice.exhaustive
    yield f"{advice.search.runs} runs of {advice.exhaustive} that all candidates on all seeds would take ({share:.0%}):"
    rounds = ", ".join(
        f"{len(one.candidates)} candidates on {one.seeds} {'seed' if one.seeds == 1 else 'seeds'}"
        for one in advice.search.rounds
    )
    yield f"{rounds}."
    yield ""
    yield f"| candidate | seeds | {' | '.join(SHOWN)} |"
    yield f"|---|---|{'---|' * len(SHOWN)}"
    order = sorted(range(len(advice.candidates)), key=lambda one: (-len(advice.search.found[one]), one))
    for number in order:
        means = training_means(advice, number)
        cells = " | ".join("-" if (mean := means[metric]) is None else _number_text(mean) for metric in SHOWN)
        yield f"| {advice.candidates[number].label} | {len(advice.search.found[number])} | {cells} |"
    if advice.left_out:
        yield ""
        yield "These protocols cannot run here:"
        yield ""
        yield from (f"- {one.label}: {one.reason}" for one in advice.left_out)


def _table_lines(rows: "list[tuple[str, object]]", signed: bool = False) -> Iterator[str]:
    yield f"| candidate | {' | '.join(SHOWN)} |"
    yield f"|---|{'---|' * len(SHOWN)}"
    for label, means in rows:
        assert isinstance(means, dict)
        cells = " | ".join(_signed_text(means[metric]) if signed else _interval_text(means[metric]) for metric in SHOWN)
        yield f"| {label} | {cells} |"


def _interval_text(found: Interval) -> str:
    if found.mean is None:
        return "-"
    if found.low is None or found.high is None or found.exact:
        return _number_text(found.mean)
    mean, low, high = interval_texts(found.mean, found.low, found.high)
    return f"{mean} ({low} to {high})"


def _number_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _signed_text(found: Interval) -> str:
    text = _interval_text(found)
    return f"+{text}" if found.mean is not None and found.mean > 0 else text


def _draw(advice: Advice, path: Path) -> None:
    """Draw the goal and the first limited metric, or delivery, of every candidate; label the Pareto front."""
    from matplotlib import pyplot as plt

    goal = advice.objective.goal
    other = next((limit.metric for limit in advice.objective.limits if limit.metric != goal), "delivery_ratio")
    if other == goal:
        other = "total_bytes"
    marks = []
    for number, candidate in enumerate(advice.candidates):
        means = training_means(advice, number)
        x, y = means[goal], means[other]
        if x is not None and y is not None:
            marks.append((x, y, candidate.label))
    canvas, ax = plt.subplots(figsize=(7.16, 4.4), layout="constrained")
    front = set(pareto_front([(x, y) for x, y, _ in marks], advice.objective.least, other in HIGHER_IS_BETTER))
    for place, (x, y, label) in enumerate(marks):
        on_front = place in front
        chosen = label == advice.chosen.candidate.label
        ax.plot(x, y, "*" if chosen else "o", color="#b3261e" if chosen else "#1f6feb" if on_front else "#b9c0c8",
                markersize=13 if chosen else 6)  # fmt: skip
        if on_front or chosen:
            ax.annotate(label, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7)
    for limit in advice.objective.limits:
        if limit.metric == other:
            ax.axhline(limit.value, color="#5d646d", linestyle=":", linewidth=1)
    bound = advice.training_bound.delivery
    if other == "delivery_ratio" and bound is not None:
        ax.axhline(bound, color="#1a7f37", linestyle="--", linewidth=1)
        ax.annotate("earliest arrival", (1, bound), xycoords=("axes fraction", "data"), ha="right",
                    va="bottom", fontsize=7, color="#1a7f37")  # fmt: skip
    if marks and min(x for x, _, _ in marks) > 0:
        ax.set_xscale("log")
    ax.set_xlabel(goal)
    ax.set_ylabel(other)
    ax.set_title("On the training part: each candidate, and those that nobody beats in both", fontsize=9)
    canvas.savefig(path, dpi=150)
    plt.close(canvas)


HIGHER_IS_BETTER = frozenset({"delivery_ratio", "delivered"})


def pareto_front(marks: list[tuple[float, float]], least_x: bool, most_y: bool) -> list[int]:
    """The Pareto front: the marks that no other mark dominates."""
    better = [(x if least_x else -x, -y if most_y else y) for x, y in marks]
    return [
        place
        for place, (x, y) in enumerate(better)
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in better)
    ]
