"""The scenario in the documentation is one that runs."""

import re
from pathlib import Path

from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import load_scenario

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"


def test_the_scenario_of_the_docs_loads_and_runs(tmp_path: Path) -> None:
    written = re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert written is not None
    (tmp_path / "field.toml").write_text(written[1], "utf-8")
    (tmp_path / "temperatures.py").write_text("def to_kelvin(event):\n    return {'unit': 'K'}\n", "utf-8")
    outcome = run(load_scenario(tmp_path / "field.toml"), seed=1)
    published = outcome.metrics["published"]
    assert published is not None
    assert published > 0
