"""Broadcasts of 802.11p in carrycast and in ns-3: receptions for each transmission, on the same places and times.

python -m benchmarks.ns3_radio

Needs ns-3 3.37 with its headers (`apt-get install libns3-dev libgsl-dev g++ pkg-config` on Debian 12). Without it, the
command says so and ends. The programs for ns-3 are in `benchmarks/ns3`.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from carrycast.core.model import Failure, NodeId
from carrycast.core.wire import Layer, Message
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.radio import Frame, MediumUpcalls, RadioContext, Reach
from carrycast.sim.radio.wifi_settings import WifiRadio

HERE = Path(__file__).parent / "ns3"
PACKAGES = ("ns3-wifi", "ns3-wave", "ns3-mobility", "ns3-network", "ns3-propagation", "ns3-core")
TOLERANCE = 0.05
MESSAGE_BYTES = 300
# MAC header of QoS data 26, checksum 4, LLC/SNAP 8: what ns-3 adds to a packet.
OVERHEAD_BYTES = 38
POWER_DBM = 20.0
EXPONENT = 2.5


class Scene(NamedTuple):
    """Standing nodes and the times at which they broadcast."""

    name: str
    fading: bool
    places: list[tuple[float, float]]
    broadcasts: list[tuple[NodeId, int]]
    """The sender and the time in microseconds of each."""


class Counted(NamedTuple):
    """The broadcasts that each node sent and received."""

    sent: list[int]
    received: list[int]

    @property
    def receptions(self) -> float:
        """The receptions for each transmission."""
        return sum(self.received) / sum(self.sent)


def scenes() -> list[Scene]:
    """One scene for each model that ns-3 has too."""
    rng = Random(1)
    line = [(0.0, 0.0), *((5.0 * place, 0.0) for place in range(1, 61))]
    road = [(rng.uniform(0, 1000), rng.uniform(0, 20)) for _ in range(100)]
    alone = [(0, 10_000 * place) for place in range(2000)]
    # Ten beacons a second from each vehicle, each at a random time of its period.
    beacons = [(node, 100_000 * place + rng.randrange(100_000)) for place in range(100) for node in range(len(road))]
    return [
        Scene("log-distance, one sender and 60 receivers", False, line, alone),
        Scene("Nakagami, one sender and 60 receivers", True, line, alone),
        Scene("802.11p, 100 vehicles on 1 km, log-distance", False, road, beacons),
        Scene("802.11p, 100 vehicles on 1 km, Nakagami", True, road, beacons),
    ]


class Blank(Message, frozen=True, tag=1):
    """A message of which only the size matters."""


class Counter(MediumUpcalls):
    """Counts what a medium reports."""

    def __init__(self, nodes: int) -> None:
        self.sent = [0] * nodes
        self.received = [0] * nodes
        self.losses: dict[str, int] = {}

    def on_received(self, frame: Frame, reach: Reach) -> None:
        self.sent[frame.sender] += 1
        for node in reach.nodes:
            self.received[node] += 1

    def on_outcome(self, frame: Frame, failure: Failure | None) -> None:
        raise AssertionError("broadcasts have no outcome")

    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        self.losses[reason] = self.losses.get(reason, 0) + 1

    def on_overheard(self, frame: Frame, nodes: Sequence[NodeId]) -> None:
        raise AssertionError("broadcasts are not overheard")


def run_carrycast(scene: Scene, seed: int) -> Counted:
    """The scene with the radio `wifi`."""
    radio = WifiRadio(
        tx_power_dbm=POWER_DBM,
        path_exponent=EXPONENT,
        fading="nakagami" if scene.fading else "none",
        overhead_bytes=OVERHEAD_BYTES,
        # As ns-3 3.37 by default: no frame captures a receiver that is locked on to another one, and a receiver senses
        # what it can detect.
        capture_db=200.0,
        carrier_sense_dbm=-82.0,
        queue=1000,
    )
    nodes, kernel = len(scene.places), Kernel()
    counter, where = Counter(nodes), np.array(scene.places)
    none = np.zeros(0, dtype=np.int64)
    plan = ContactPlan.of(nodes, 1.0, none, none, np.zeros(0), np.zeros(0))
    context = RadioContext("radio", nodes, 1.0, kernel, counter, Random(seed), None, lambda _: plan, lambda _: where)
    medium = radio.medium(context)

    def send(node: object) -> None:
        assert isinstance(node, int)
        medium.transmit(Frame(node, None, Layer.DISSEMINATION, Blank(), bytes(MESSAGE_BYTES), None, kernel.now_us))

    for node, time_us in scene.broadcasts:
        kernel.at(time_us, send, node)
    kernel.run(max(time_us for _, time_us in scene.broadcasts) + 1_000_000)
    return Counted(counter.sent, counter.received)


def run_ns3(program: Path, scene: Scene, seed: int) -> Counted:
    """The scene with ns-3."""
    model = "nakagami" if scene.fading else "log_distance"
    head = (model, EXPONENT, POWER_DBM, MESSAGE_BYTES, seed, len(scene.places))
    lines = [" ".join(map(str, row)) for row in (head, *scene.places, *scene.broadcasts)]
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    rows = [[int(one) for one in line.split()] for line in done.stdout.splitlines()]
    return Counted([row[1] for row in rows], [row[2] for row in rows])


def compile_program(name: str, folder: Path) -> Path:
    """Compile a program of `benchmarks/ns3`."""
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", *PACKAGES], capture_output=True, text=True, check=True
    ).stdout.split()
    program = folder / name
    subprocess.run(["g++", "-O1", "-std=c++17", HERE / f"{name}.cc", "-o", program, *flags], check=True)
    return program


def missing() -> str:
    """What is not installed; empty if nothing is missing."""
    for tool in ("g++", "pkg-config"):
        if shutil.which(tool) is None:
            return tool
    found = subprocess.run(["pkg-config", "--exists", *PACKAGES], check=False)
    return "libns3-dev" if found.returncode else ""


def main() -> int:
    """Compare both simulators; the status is 1 if one scene differs by more than the tolerance."""
    lacking = missing()
    if lacking:
        print(f"skipped: {lacking} is not installed; apt-get install libns3-dev libgsl-dev g++ pkg-config")
        return 0
    failed = False
    print("| scene | ns-3 | carrycast | difference |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program("radio", Path(folder))
        for scene in scenes():
            theirs = [run_ns3(program, scene, seed).receptions for seed in (1, 2, 3)]
            ours = [run_carrycast(scene, seed).receptions for seed in (1, 2, 3)]
            theirs_mean, ours_mean = sum(theirs) / len(theirs), sum(ours) / len(ours)
            off = ours_mean / theirs_mean - 1
            failed |= abs(off) > TOLERANCE
            print(f"| {scene.name} | {theirs_mean:.3f} | {ours_mean:.3f} | {off:+.1%} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
