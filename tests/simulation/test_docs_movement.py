"""The movements, radios and models in the documentation are ones that scenarios may have."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from carrycast.sim.mobility.model import Area, MobilityModel, movement_models
from carrycast.sim.scenario.scenario import load_scenario

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = ("mobility.md", "csma.md")
BLOCKS = [
    pytest.param(text, id=f"{page} {place}")
    for page in PAGES
    for place, text in enumerate(BLOCK.findall((ROOT / "docs" / page).read_text("utf-8")))
]
REST = {
    "duration_s": "duration_s = 60",
    "nodes": "nodes = 5",
    "protocol": 'protocol = { name = "flooding" }',
    "[mobility]": 'mobility = { model = "random_static" }',
}
"""What a block may leave out."""


@pytest.mark.parametrize("block", BLOCKS)
def test_a_scenario_with_the_block_loads(block: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "fleet" / "buses.csv", tmp_path)
    rest = [line for key, line in REST.items() if not re.search(rf"^{re.escape(key)}", block, re.MULTILINE)]
    (tmp_path / "field.toml").write_text("\n".join([*rest, block]), "utf-8")
    scenario = load_scenario(tmp_path / "field.toml")
    assert scenario.mobility is not None


def test_the_page_names_every_movement_model() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "mobility.md").read_text("utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(movement_models())


def test_the_model_of_the_page_moves_nodes() -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "mobility.md").read_text("utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, object] = {"__name__": "circle_model"}
    exec(code[1], names)
    circle = names["Circle"]
    assert isinstance(circle, type)
    assert issubclass(circle, MobilityModel)
    there = circle(radius_m=100.0).trajectories(4, Area(400, 400), 60.0, np.random.default_rng(1))
    assert there.positions(30.0).tolist() == [
        pytest.approx(place) for place in ([300, 200], [200, 300], [100, 200], [200, 100])
    ]
