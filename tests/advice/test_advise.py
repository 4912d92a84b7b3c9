"""`advise` from the command to the files that it writes, with the page's own command."""

import json
import re
import shlex
from pathlib import Path

import pytest

from carrycast.node.config import load_config
from tests.cli.console import REPOSITORY, call

PAGE = REPOSITORY / "docs" / "advice.md"


def command() -> list[str]:
    """The first command of the docs page."""
    (found, *_) = re.findall(r"^carrycast advise (.*?[^\\])$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return shlex.split(found.replace("\\\n", " "), comments=True)


@pytest.mark.timeout(3600)
def test_the_page_leads_from_a_recording_to_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    done = call("advise", *command(), "--json")
    found = done.object()
    out = tmp_path / "out" / "advice"
    page = (out / "advice.md").read_text("utf-8")
    assert page.startswith("# Advice for buses\n")
    assert f"Run {found['protocol']}." in page
    html = (out / "index.html").read_text("utf-8")
    assert "<h1>Advice for buses</h1>" in html
    assert 'src="data:image/png;base64,' in html
    assert "http" not in re.sub(r"base64,[^\"]*", "", html)
    assert (out / "pareto.png").stat().st_size > 1000
    runs, exhaustive = found["runs"], found["exhaustive"]
    assert isinstance(runs, int)
    assert isinstance(exhaustive, int)
    assert runs < exhaustive
    judged = found["held_out"]
    assert isinstance(judged, dict)
    assert next(iter(judged)) == found["protocol"]
    assert len(judged) == 3
    assert json.dumps(found["bound"]).startswith('{"delivery": ')
    config = load_config(out / "nodes" / "node-00.toml")
    assert str(found["protocol"]).startswith(config.plan.protocol.name)
    again = call("advise", *command(), "--json").object()
    assert again == found, "what has run is kept"


def test_mistakes_are_told_before_anything_runs(tmp_path: Path) -> None:
    scenario = REPOSITORY / "examples" / "ferries.toml"
    out = ("--out", tmp_path / "out")
    assert "has no goals" in call("advise", scenario, "--objective", "delivery >= 0.9", *out).refusal()
    assert "--runs 1: from 2" in call("advise", scenario, "--runs", "1", *out).refusal()
    assert "there is no protocol 'epidemc'" in call("advise", scenario, "--protocols", "epidemc", *out).refusal()
