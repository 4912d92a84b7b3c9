"""The faults in the documentation are ones that a scenario may have."""

import re
from pathlib import Path

from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.faults import Fault
from carrycast.sim.scenario.scenario import load_scenario

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
SCENARIO = """
duration_s = 150.0
nodes = 10
protocol = { name = "flooding" }
mobility = { model = "random_static" }
[[subscribe]]
nodes = "all"
[[publish]]
nodes = "all"
every_s = 20.0
attributes = { topic = "rain" }
"""


def test_a_scenario_with_all_faults_of_the_page_runs(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "faults.toml").write_text(SCENARIO + "\n".join(blocks), "utf-8")
    scenario = load_scenario(tmp_path / "faults.toml")
    kinds = {str(kind.__struct_config__.tag) for kind in Fault.__args__}
    assert {str(fault.__struct_config__.tag) for fault in scenario.faults} == kinds
    assert set(re.findall(r"^\| [^|]+ \| `(\w+)` \|", page, re.MULTILINE)) == kinds
    assert run(scenario, seed=1).metrics["published"]
