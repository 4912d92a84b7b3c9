"""The Python and the native engine, compared on every example, the first seed of every point of every experiment, and
random scenarios of two kinds: equal fingerprints, metrics, samples and traces, or the same error.

    python -m benchmarks.differential --count 1000
    python -m benchmarks.differential --only 'random/*' --count 50

A run is named by its label: `examples/FILE`, `EXPERIMENT/POINT`, `random/SEED/INDEX`, or `native/SEED/INDEX` for a
random scenario of a protocol that is in C++. `--only` takes the runs whose label matches. The file of `--resume` has a
line for each run that ended; a second start goes on there.
"""

import argparse
import fnmatch
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec

from benchmarks.fingerprints import all_work
from benchmarks.native_cases import draw_native_case
from carrycast.errors import UserError
from carrycast.sim.engine import NATIVE, PYTHON, RunResult, run, select_engine
from carrycast.sim.scenario import Scenario, check_files, load_scenario
from carrycast.sim.testing.fuzz import draw_case
from carrycast.trace import Level
from carrycast.trace.diff import diff_tables

COMMAND = "python -m benchmarks.differential"
LIMIT_S = 60.0
"""The CPU seconds of a run of a random scenario; a longer one is not compared."""
CONDITIONS = ((Level.METRICS, False), (Level.FULL, False), (Level.DELIVERIES, False), (Level.FULL, True))
"""The levels of trace of random scenarios, and whether every message is encoded and decoded again, in turn."""


class Comparison(msgspec.Struct, frozen=True):
    """A run with both engines. `verdict` is `same`, `differs`, `not covered`, `refused` or `too long`."""

    label: str
    verdict: str
    text: str = ""
    python_s: float = 0.0
    native_s: float = 0.0


class _TooLongError(BaseException):
    """The CPU time of a run is used up. A BaseException, so that no handler of errors catches it."""


class _Outcome(msgspec.Struct):
    """What a run returned, or its error."""

    result: RunResult | None
    error: str
    cpu_s: float


def compare_engines(
    label: str, scenario: Scenario, seed: int, level: Level = Level.METRICS, recode: bool = False
) -> Comparison:
    """Run a scenario with both engines and compare."""
    try:
        select_engine(NATIVE, scenario)
    except UserError as error:
        return Comparison(label, "not covered", str(error))
    python, native = (_run(scenario, seed, level, recode, engine) for engine in (PYTHON, NATIVE))
    text = _find_difference(python, native)
    verdict = "differs" if text else "same"
    return Comparison(label, verdict, text, round(python.cpu_s, 3), round(native.cpu_s, 3))


def compare_random(seed: int, index: int, limit_s: float = LIMIT_S) -> Comparison:
    """Compare the engines on a random scenario."""
    case, label = draw_case(seed, index), f"random/{seed}/{index}"
    level, recode = CONDITIONS[index % len(CONDITIONS)]
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        with tempfile.TemporaryDirectory() as folder:
            scenario = load_scenario(case.write(Path(folder)))
            scenario.make_stack_plan()
            check_files(scenario)
            return compare_engines(label, scenario, case.seed, level, recode)
    except UserError as error:
        return Comparison(label, "refused", str(error))
    except _TooLongError:
        return Comparison(label, "too long", f"more than {limit_s:g} s of the processor")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def compare_native(seed: int, index: int) -> Comparison:
    """Compare the engines on a random scenario of a protocol that is in C++."""
    level, _ = CONDITIONS[index % 3]
    return compare_engines(f"native/{seed}/{index}", draw_native_case(seed, index), 1, level)


def _stop(number: int, frame: FrameType | None) -> None:
    raise _TooLongError


def _run(scenario: Scenario, seed: int, level: Level, recode: bool, engine: str) -> _Outcome:
    began_s = time.process_time()
    try:
        result, error = run(scenario, seed, level, recode=recode, engine=engine), ""
    except Exception as failure:  # The other engine must fail in the same way.
        result, error = None, f"{type(failure).__name__}: {failure}"
    return _Outcome(result, error, time.process_time() - began_s)


def _find_difference(python: _Outcome, native: _Outcome) -> str:
    """What differs between two runs that should be equal; empty if nothing does."""
    first, second = python.result, native.result
    if first is None or second is None:
        return (
            "" if python.error == native.error else f"python: {python.error or 'ran'}; native: {native.error or 'ran'}"
        )
    if first.fingerprint != second.fingerprint:
        return f"fingerprints {first.fingerprint} and {second.fingerprint}"
    for name in first.metrics:
        # As text, because NaN differs from itself.
        if repr(first.metrics[name]) != repr(second.metrics.get(name)):
            return f"metric {name}: {first.metrics[name]!r} and {second.metrics.get(name)!r}"
    for name, ours, theirs in (
        ("metrics", list(first.metrics), list(second.metrics)),
        ("samples", repr(first.series), repr(second.series)),
        ("failed processors", repr(first.failures), repr(second.failures)),
    ):
        if ours != theirs:
            return f"{name}: {ours} and {theirs}"
    for table in ("table", "events", "subscriptions"):
        found = diff_tables(table, getattr(first.trace, table)(), getattr(second.trace, table)())
        if found is not None:
            return f"trace, table {table}, row {found.row}, {found.columns}: {found.first} and {found.second}"
    return ""


class _Task(msgspec.Struct, frozen=True):
    """A comparison to make: of a random scenario, or of a scenario with its seed."""

    label: str
    scenario: Scenario | None
    seed: int
    index: int = 0

    def compare(self) -> Comparison:
        if self.label.startswith("native/"):
            return compare_native(self.seed, self.index)
        if self.scenario is None:
            return compare_random(self.seed, self.index)
        return compare_engines(self.label, self.scenario, self.seed)


def _find_tasks(count: int, seed: int, first: int, only: str) -> Iterator[_Task]:
    for kind in ("random", "native"):
        for index in range(first, first + count):
            if fnmatch.fnmatch(label := f"{kind}/{seed}/{index}", only):
                yield _Task(label, None, seed, index)
    if not only.startswith(("random/", "native/")):
        for work in all_work():
            if fnmatch.fnmatch(work.label, only):
                yield _Task(work.label, work.scenario, work.seed)


def _compare(task: _Task) -> Comparison:
    return task.compare()


def main(arguments: list[str] | None = None) -> int:
    """Compare what is missing in the file, and report; the exit status says whether all are the same."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many random scenarios (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other random scenarios (default 1)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="the labels of the runs to compare")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="the file of results; goes on there")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    found: dict[str, Comparison] = {}
    if options.resume is not None and options.resume.exists():
        lines = options.resume.read_text("utf-8").splitlines()
        found = {one.label: one for one in (msgspec.json.decode(line, type=Comparison) for line in lines)}
        found = {label: one for label, one in found.items() if one.verdict != "differs"}
    tasks = list(_find_tasks(options.count, options.seed, options.first, options.only))
    missing = [task for task in tasks if task.label not in found]
    with multiprocessing.get_context("forkserver").Pool(options.workers) as pool:
        for one in pool.imap_unordered(_compare, missing):
            found[one.label] = one
            if options.resume is not None:
                with options.resume.open("a", encoding="utf-8") as file:
                    file.write(msgspec.json.encode(one).decode() + "\n")
            if one.verdict == "differs":
                print(f"{one.label} differs: {one.text}\n  replay: {_replay_command(one.label)}", flush=True)
    done = [found[task.label] for task in tasks]
    print(json.dumps(Counter(one.verdict for one in done)))
    same = [one for one in done if one.verdict == "same"]
    print(f"CPU s: python {sum(one.python_s for one in same):.0f}, native {sum(one.native_s for one in same):.0f}")
    return int(any(one.verdict == "differs" for one in done))


def _replay_command(label: str) -> str:
    if not label.startswith(("random/", "native/")):
        return f"{COMMAND} --count 0 --only '{label}' --workers 1"
    _, seed, index = label.split("/")
    return f"{COMMAND} --only '{label}' --seed {seed} --first {index} --count 1 --workers 1"


if __name__ == "__main__":
    sys.exit(main())
