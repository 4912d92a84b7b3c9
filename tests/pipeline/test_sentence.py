"""A comparison in a sentence: worked by hand."""

import pytest

from carrycast.analysis.spark.statistics import Interval
from carrycast.analysis.spark.summary import comparison_sentence

NONE = Interval(0, None, None, None)


def frames(mean: float) -> Interval:
    return Interval(10, mean, mean - 1, mean + 1)


@pytest.mark.parametrize(
    ("more", "ours", "theirs", "said"),
    [
        (
            Interval(10, 0.657, 0.612, 0.702),
            frames(1000),
            frames(100),
            "epidemic delivers 0.66 more (0.61 to 0.70) than flooding, with 10 times the frames.",
        ),
        (
            Interval(10, -0.5, -0.6, -0.4),
            frames(50),
            frames(100),
            "epidemic delivers 0.50 less (0.40 to 0.60) than flooding, with 0.5 times the frames.",
        ),
        (
            Interval(10, 0.02, -0.01, 0.05),
            frames(102),
            frames(100),
            "Between epidemic and flooding nothing is decided: epidemic delivers 0.02 more (-0.01 to 0.05) in 10 runs, "
            "with as many frames; more runs may tell.",
        ),
        (
            Interval(10, -0.02, -0.05, 0.01),
            frames(250),
            frames(100),
            "Between epidemic and flooding nothing is decided: epidemic delivers 0.02 less (-0.01 to 0.05) in 10 runs, "
            "with 2.5 times the frames; more runs may tell.",
        ),
        (
            Interval(1, 0.3, None, None),
            frames(300),
            frames(100),
            "epidemic delivers 0.30 more than flooding in one run, with 3 times the frames; that decides nothing yet: "
            "ask for more with --runs.",
        ),
        (
            Interval(4, 0.0, None, None),
            frames(7),
            frames(0),
            "epidemic delivers as much as flooding in each of 4 runs, with 7 frames instead of none.",
        ),
        (
            Interval(9, 0.001, 0.0005, 0.0015),
            NONE,
            NONE,
            "epidemic delivers 0.0010 more (0.0005 to 0.0015) than flooding.",
        ),
        (
            Interval(10, -0.0112, -0.0126, -0.0098),
            NONE,
            NONE,
            "epidemic delivers 0.011 less (0.010 to 0.013) than flooding.",
        ),
        (
            Interval(10, 0.0103, 0.0004, 0.0202),
            NONE,
            NONE,
            "epidemic delivers 0.0103 more (0.0004 to 0.0202) than flooding.",
        ),
        (NONE, NONE, NONE, "Nothing can be said of epidemic beside flooding: no run of both had anything to deliver."),
    ],
)
def test_what_is_said(more: Interval, ours: Interval, theirs: Interval, said: str) -> None:
    assert comparison_sentence("epidemic", "flooding", more, ours, theirs) == said
