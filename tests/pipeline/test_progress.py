"""Progress: on standard error, and on nothing else."""

import sys

import pytest

from carrycast.analysis.spark.progress_bar import progress


def test_without_a_terminal_the_last_line_tells_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    done = [0]
    with progress("study", 7, lambda: done[0]):
        done[0] = 7
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("study: 7 of 7 runs, ")


def test_a_count_that_fails_does_not_stop_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    def count() -> int:
        raise FileNotFoundError("the folder went away")

    with progress("study", 7, count):
        worked = True
    assert worked
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("study", 7, lambda: 7):
        pass
    assert "7/7" in capsys.readouterr().err


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("study", 7, lambda: 7, quiet=True):
        pass
    with progress("study", 0, lambda: 0):
        pass
    assert capsys.readouterr().err == ""
