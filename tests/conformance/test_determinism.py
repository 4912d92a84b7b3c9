"""The same seed gives the same run: in one process and in another, traced or not, recoded or not, alone or beside."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carrycast.core.plugins import PROTOCOLS
from carrycast.sim.engine.simulation import Simulation, run
from carrycast.trace import Level
from tests.conformance.memory import globals_of
from tests.conformance.subjects import FAULTS, MOBILE, SUBJECTS, Subject, label, scenario_of
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
every_protocol = pytest.mark.parametrize("subject", SUBJECTS, ids=label)

SCRIPT = """
import json
from carrycast.sim.engine.simulation import run
from tests.conformance.subjects import FAULTS, SUBJECTS, label, scenario_of
print(json.dumps({label(subject): run(scenario_of(FAULTS, subject), 5).fingerprint for subject in SUBJECTS}))
"""


def fingerprints_elsewhere(hash_seed: str) -> dict[str, str]:
    """The fingerprint of every protocol, from another process."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_hash_seed_of_the_process_does_not_matter() -> None:
    here = {label(subject): run(scenario_of(FAULTS, subject), 5).fingerprint for subject in SUBJECTS}
    assert fingerprints_elsewhere("1") == here
    assert fingerprints_elsewhere("4711") == here


@every_protocol
def test_the_same_seed_gives_the_same_run_and_another_seed_another(subject: Subject) -> None:
    once, again = run(scenario_of(MOBILE, subject), 3), run(scenario_of(MOBILE, subject), 3)
    assert once.summary() == again.summary()
    assert run(scenario_of(MOBILE, subject), 4).fingerprint != once.fingerprint


@every_protocol
def test_how_much_of_the_trace_is_kept_does_not_matter(subject: Subject) -> None:
    done = [run(scenario_of(FAULTS, subject), 3, level) for level in Level]
    assert len({one.fingerprint for one in done}) == 1
    assert done[0].metrics == done[1].metrics == done[2].metrics


@every_protocol
def test_messages_that_pass_through_bytes_say_the_same(subject: Subject) -> None:
    plain, recoded = (run(scenario_of(MOBILE, subject), 3, recode=recode) for recode in (False, True))
    assert plain.summary() == recoded.summary()


@every_protocol
def test_two_simulations_in_one_process_do_not_touch(subject: Subject) -> None:
    alone = [run(scenario_of(path, subject), seed).fingerprint for path, seed in ((MOBILE, 1), (FAULTS, 2))]
    beside = [Simulation(scenario_of(path, subject), seed) for path, seed in ((MOBILE, 1), (FAULTS, 2))]
    for simulation in beside:
        simulation.start()
    for second in range(1, 61):
        for simulation in beside:
            simulation.advance(second)
    assert [simulation.finish().fingerprint for simulation in beside] == alone


@every_protocol
def test_a_run_leaves_nothing_behind_in_the_protocol_s_classes_and_modules(subject: Subject) -> None:
    package = f"{PROTOCOLS}.{subject['name']}"
    run(scenario_of(MOBILE, subject), 1)
    before = globals_of(package)
    run(scenario_of(FAULTS, subject), 2)
    assert globals_of(package) == before
