"""The pages about policies say what the code does."""

import re
from pathlib import Path

from carrycast.services.policy.conflict import find_conflict
from carrycast.services.policy.policy_text import parse_policies
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import load_scenario
from carrycast.trace import Level

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "policy.md").read_text("utf-8")
REFERENCE = (REPOSITORY / "docs" / "policy-language.md").read_text("utf-8")
EXAMPLE = REPOSITORY / "examples" / "policy"


def test_the_policies_of_the_page_are_those_of_the_example() -> None:
    [text] = re.findall(r"```policy\n(.*?)```", PAGE, re.DOTALL)
    assert text == (EXAMPLE / "night.policy").read_text("utf-8")
    assert [policy.id for policy in parse_policies(text)] == ["night", "weak"]


def test_the_conflict_of_the_reference_is_explained_as_it_says() -> None:
    [(text, says)] = re.findall(r"```conflict\n(.*?)---\n(.*?)\n```", REFERENCE, re.DOTALL)
    slow, fast = parse_policies(text)
    found = find_conflict(fast, slow)
    assert found is not None
    assert found.explain() == says


def test_the_example_runs_and_everybody_does_as_the_policies_say() -> None:
    outcome = run(load_scenario(EXAMPLE / "field.toml"), seed=1, trace=Level.FULL)
    rows = outcome.trace.table().to_pylist()
    stored = {row["node"] for row in rows if row["kind"] == "policy_stored"}
    assert stored == {4, 5}
    enforced = {(row["node"], row["reason"]) for row in rows if row["kind"] == "policy_enforced"}
    # It becomes night after a minute. The one whose battery is low is overruled in that and has its own.
    assert enforced == {(6, "night 1"), (7, "night 1"), (8, "weak 1")}


def test_every_drop_of_the_room_stands_in_the_reference() -> None:
    room = REPOSITORY / "src" / "carrycast" / "services" / "policy"
    source = "\n".join(path.read_text("utf-8") for path in sorted(room.glob("*.py")))
    reasons = set(re.findall(r'"drop",[^)]*?"([a-z_]+)"\)', source)) | set(re.findall(r'reason="([a-z_]+)"', source))
    assert len(reasons) > 8
    assert all(f"`{reason}`" in REFERENCE for reason in reasons), reasons
