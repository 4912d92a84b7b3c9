"""`python -m carrycast.sim.testing.fuzz`: run random scenarios, report failures, and save a small scenario for each."""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TextIO

import msgspec

from carrycast.sim.testing.fuzz.case import FuzzCase, load_case
from carrycast.sim.testing.fuzz.pool import LIMIT_S, FuzzVerdict, WorkerPair
from carrycast.sim.testing.fuzz.scenarios import draw_case
from carrycast.sim.testing.fuzz.shrink import ATTEMPTS, shrink_case

COMMAND = "python -m carrycast.sim.testing.fuzz"


def main() -> int:
    """Run the command; return 1 if a case failed, else 0."""
    arguments = _parse_arguments()
    if arguments.replay is not None:
        return _replay(arguments.replay, arguments.run_seed, arguments.limit)
    campaign = Campaign(arguments)
    with arguments.resume.open("a", encoding="utf-8") as file:
        campaign.run(file)
    return campaign.report()


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Run random scenarios, each twice, and compare.")
    parser.add_argument("--count", type=int, default=300, help="how many scenarios (default 300)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other scenarios (default 1)")
    parser.add_argument("--workers", type=int, default=1, help="how many run at the same time (default 1)")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help=f"CPU seconds for a run (default {LIMIT_S:g})")
    parser.add_argument(
        "--resume", type=Path, default=Path("build/fuzz.jsonl"), help="the file of results; goes on there"
    )
    parser.add_argument("--failures", type=Path, default=Path("build/fuzz"), help="where small scenarios are left")
    parser.add_argument("--replay", type=Path, metavar="SCENARIO", help="run this scenario twice and compare")
    parser.add_argument("--run-seed", type=int, default=1, help="with --replay: the seed of its runs")
    return parser.parse_args()


def _replay(path: Path, seed: int, limit_s: float) -> int:
    with WorkerPair(limit_s=limit_s) as pair:
        verdict = pair.judge(load_case(path, seed))
    print(msgspec.json.encode(verdict).decode())
    return int(verdict.status == "failed")


class Campaign:
    """Runs many cases on several pairs of workers, and appends each result to a file.

    Cases that the file already has are skipped, except failed ones, which may have been fixed.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._lock = threading.Lock()
        self._found: dict[int, FuzzVerdict] = {}
        self._shrunk: set[str] = set()
        arguments.resume.parent.mkdir(parents=True, exist_ok=True)
        if arguments.resume.exists():
            for line in arguments.resume.read_text("utf-8").splitlines():
                entry = json.loads(line)
                verdict = msgspec.convert(entry["verdict"], FuzzVerdict)
                if entry["seed"] == arguments.seed and verdict.status != "failed":
                    self._found[entry["index"]] = verdict
        wanted = range(arguments.first, arguments.first + arguments.count)
        self._todo = iter([index for index in wanted if index not in self._found])
        self._left = sum(index not in self._found for index in wanted)

    def run(self, file: TextIO) -> None:
        """Run all cases that the file does not have."""
        threads = [
            threading.Thread(target=self._work, args=(number, file), daemon=True)
            for number in range(self._arguments.workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def report(self) -> int:
        """Print the summary; return 1 if a case failed."""
        counts = Counter(verdict.status for verdict in self._found.values())
        ran = [verdict for verdict in self._found.values() if verdict.status == "same"]
        delivering = sum(verdict.delivered > 0 for verdict in ran)
        cpu_s = sum(verdict.cpu_s for verdict in self._found.values())
        print(f"{len(self._found)} scenarios: {dict(counts)}, {cpu_s:.0f} s of the processor")
        print(f"{delivering} of the {len(ran)} that ran delivered something ({delivering / max(1, len(ran)):.0%})")
        by_protocol = Counter(verdict.protocol for verdict in ran)
        delivered = Counter(verdict.protocol for verdict in ran if verdict.delivered > 0)
        for name in sorted(by_protocol):
            print(f"  {name}: {by_protocol[name]} ran, {delivered[name]} delivered")
        for signature, times in Counter(
            v.signature for v in self._found.values() if v.status == "failed"
        ).most_common():
            print(f"failed {times} times: {signature}")
        return int(counts["failed"] > 0)

    def _take_next(self) -> int | None:
        with self._lock:
            return next(self._todo, None)

    def _work(self, number: int, file: TextIO) -> None:
        with WorkerPair(number, self._arguments.limit) as pair:
            while (index := self._take_next()) is not None:
                verdict = pair.judge_drawn(self._arguments.seed, index)
                with self._lock:
                    self._found[index] = verdict
                    self._left -= 1
                    line = {"seed": self._arguments.seed, "index": index, "verdict": msgspec.to_builtins(verdict)}
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    if self._left % 100 == 0:
                        print(f"{time.strftime('%H:%M:%S')} {self._left} left", flush=True)
                    is_new = verdict.status == "failed" and verdict.signature not in self._shrunk
                    self._shrunk |= {verdict.signature} if is_new else set()
                if verdict.status == "failed":
                    print(f"scenario {index} failed: {verdict.text}", flush=True)
                if is_new:
                    self._shrink(pair, index, verdict)

    def _shrink(self, pair: WorkerPair, index: int, verdict: FuzzVerdict) -> None:
        def fails(candidate: FuzzCase) -> bool:
            return pair.judge(candidate).signature == verdict.signature

        # Each attempt takes as long as the failed run itself.
        attempts = ATTEMPTS if verdict.kind not in ("too_long", "died") else 12
        small = shrink_case(draw_case(self._arguments.seed, index), fails, attempts)
        path = small.write(self._arguments.failures / f"{self._arguments.seed}-{index}")
        print(f"  {verdict.signature}\n  smaller: {path}\n  replay: {COMMAND} --replay {path} --run-seed {small.seed}")
        print(f"  or: carrycast run {path} --seed {small.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
