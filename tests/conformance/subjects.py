"""Whom the suite examines: every protocol that the registry finds, as it comes and in each of its variants."""

from pathlib import Path

from carrycast.core.settings import read_toml
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.sim.testing import example_tables, examples

HERE = Path(__file__).parent
MOBILE = HERE / "mobile.toml"
FAULTS = HERE / "faults.toml"

Subject = dict[str, object]
SUBJECTS: list[Subject] = list(examples())


def label(subject: Subject) -> str:
    """As the command line names it: `gossip`, `semi_probabilistic/pure`."""
    return "/".join(str(part) for part in subject.values())


def scenario_of(path: Path, subject: Subject, **tables: object) -> Scenario:
    """A scenario of the suite with a protocol, whatever that protocol needs around it, and other changes."""
    name = str(subject["name"])
    return parse_scenario({**read_toml(path), **example_tables(name), "protocol": subject, **tables}, path.name)


def replay(path: Path, subject: Subject, seed: int) -> str:
    """The command that does a run again."""
    return f"carrycast run tests/conformance/{path.name} --protocol {label(subject)} --seed {seed}"
