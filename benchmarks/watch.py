"""How far `carrycast watch` is behind ten live nodes on loopback, and whether its numbers are the batch job's.

`python -m benchmarks.watch [SECONDS]` runs the nodes in this process and the watch in another; at the end it stops the
watch with Ctrl-C and judges the same traces at once.
"""

import asyncio
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from carrycast.analysis.telemetry.minutes import compute_minutes
from carrycast.analysis.telemetry.picture import read_minutes
from carrycast.core.protocol import StackPlan
from carrycast.core.protocol.registry import find_protocol
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork
from carrycast.node.config import NodeConfig
from carrycast.node.link.config import UDP, InterfaceConfig
from carrycast.node.trace_files import TraceConfig
from carrycast.trace import Level

NODES = 10
FLUSH_S = 2.0
EVENTS_PER_S = 5.0


async def live(folder: Path, seconds: float) -> None:
    """Ten nodes in a ring; each subscribes, and events are published anywhere."""
    kind = find_protocol("epidemic")
    configs = [
        NodeConfig(
            f"node-{node}",
            node,
            StackPlan(kind, kind.settings_type()),
            (InterfaceConfig(UDP),),
            trace=TraceConfig(Level.FULL, folder, "bench", FLUSH_S),
        )
        for node in range(NODES)
    ]
    draw = random.Random(1)
    async with LoopbackNetwork(configs) as network:
        network.line()
        network.link(0, NODES - 1)
        for id, node in network.nodes.items():
            node.subscribe(f"topic <> {id % 3}", Inbox())
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            network.nodes[draw.randrange(NODES)].publish({"topic": draw.randrange(3)})
            await asyncio.sleep(draw.expovariate(EVENTS_PER_S))


def main(seconds: float) -> None:
    """Run it and print what came out."""
    with tempfile.TemporaryDirectory() as place:
        traces, out, told = Path(place, "traces"), Path(place, "out"), Path(place, "told")
        traces.mkdir()
        command = [sys.executable, "-m", "carrycast.cli", "watch", str(traces), "--out", str(out), "--json"]
        with told.open("w") as file:
            watch = subprocess.Popen(command, stdout=file)
            asyncio.run(live(traces, seconds))
            # One step more for what the nodes wrote when they stopped.
            done: tuple[int | None, int] = (None, -1)
            while done != (done := (watch.poll(), told.stat().st_size)):
                asyncio.run(asyncio.sleep(15))
            watch.send_signal(signal.SIGINT)
            watch.wait()
        steps = [json.loads(line) for line in told.read_text().splitlines()]
        behind = [step["behind_s"] for step in steps]
        found = [{key: value for key, value in row.items() if key != "final"} for row in read_minutes(out, None)]
        last = steps[-1]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime
        print(f"CPU of the watch {cpu_s:.0f} s, {cpu_s / len(steps):.1f} for each step with its start in it")
        print(f"steps {len(steps)}, rows {last['rows']}, left out {last['left_out']}, exit {watch.returncode}")
        print(f"behind at the first step {behind[0]:.1f} s; afterwards, worst {max(behind[1:]):.1f} s,", end=" ")
        print(f"median {sorted(behind[1:])[len(behind[1:]) // 2]:.1f} s: {[round(one, 1) for one in behind]}")
        print(f"equal to the batch job: {found == compute_minutes([traces])}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0)
