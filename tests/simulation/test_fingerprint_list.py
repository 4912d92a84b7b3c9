"""The list of fingerprints by which two commits are compared."""

import json
from pathlib import Path

import pytest

from benchmarks.fingerprints import all_work, main


def test_the_list_covers_every_example_and_experiment() -> None:
    labels = [work.label for work in all_work()]
    assert "examples/quick.toml" in labels
    assert {label.split("/")[0] for label in labels} >= {"asp", "overlay", "topic-holders", "adaptive", "policy"}
    assert len(set(labels)) == len(labels)


def test_a_list_goes_on_where_it_stopped_and_differences_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    only = ["--only", "examples/quick.toml", "--workers", "1"]
    assert main([str(before), *only]) == 0
    assert main([str(after), "--compare", str(before), *only]) == 0
    assert "1 the same, 0 differ, 0 only here" in capsys.readouterr().out
    changed = {"examples/quick.toml": ["2-another", 0.1]}
    after.write_text(json.dumps(changed))
    assert main([str(after), "--compare", str(before), *only]) == 1, "what the file holds is not computed again"
    assert "became 2-another\n0 the same, 1 differ, 0 only here" in capsys.readouterr().out
