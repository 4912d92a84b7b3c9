"""`python -m benchmarks.drift [ROUNDS [SEED...]]`: the CPU of drift's runs for each of epidemic's, network by network.

The two run one after the other within one process, so that whatever else the machine does strikes both. For each seed
the middle of the rounds' ratios, and of the least CPU of each the ratio; then the same for each step of the queue.
"""

import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import carrycast
from carrycast.sim.engine.simulation import Simulation
from carrycast.sim.scenario.overrides import resolve_scenario

EXPERIMENTS = Path(carrycast.__file__).parent / "analysis" / "experiments"
NETWORKS = {
    "dense": "baselines/dense.toml",
    "sparse": "baselines/sparse.toml",
    "producers": "drift/producers.toml",
    "stations": "drift/stations.toml",
    "grid": "drift/grid.toml",
    "vehicles": "drift/vehicles.toml",
    "highway": "drift/highway.toml",
}


def cpu_s(path: Path, protocol: str, seed: int) -> tuple[float, int]:
    """Of one run, and how many steps of the queue it took."""
    simulation = Simulation(resolve_scenario(path, protocol, {}, ("protocol", "settings")), seed)
    gc.collect()
    gc.disable()
    began_s = time.process_time()
    simulation.start()
    simulation.advance(simulation.scenario.duration_s)
    simulation.finish()
    took_s = time.process_time() - began_s
    gc.enable()
    return took_s, simulation.kernel.popped


def ratios(rounds: int, seeds: list[int]) -> Iterator[str]:
    yield "| network | seed | middle ratio | ratio of the least | of each step of the queue |"
    yield "|---|---|---|---|---|"
    for name, file in NETWORKS.items():
        for seed in seeds:
            runs = [[cpu_s(EXPERIMENTS / file, one, seed) for one in ("drift", "epidemic")] for _ in range(rounds)]
            middle = median(own[0] / other[0] for own, other in runs)
            (own_s, own_steps), (other_s, other_steps) = (min(ones) for ones in zip(*runs, strict=True))
            least, stepwise = own_s / other_s, own_s / own_steps / (other_s / other_steps)
            yield f"| {name} | {seed} | {middle:.2f} | {least:.2f} | {stepwise:.2f} |"


if __name__ == "__main__":
    asked = [int(one) for one in sys.argv[1:]]
    for line in ratios(asked[0] if asked else 9, asked[1:] or [1, 2]):
        print(line, flush=True)
