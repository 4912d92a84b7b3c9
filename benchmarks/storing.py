"""W8: how many events a second a node answers for, accepted or on its disk. `python -m benchmarks.storing` prints it.

One client, one node in a process of its own, epidemic on the durable store, events of 200 bytes. The client sends on
while the node has not answered, so one sync of the disk serves many.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from carrycast.node.api.client import connect
from carrycast.node.api.messages import Level

EVENTS = 20_000
PAYLOAD = bytes(180)
CONFIG = """
name = "store"
[listen]
host = "127.0.0.1"
port = 0
[protocol]
name = "epidemic"
durable = {durable}
buffer = 1000000
[store]
file = "store.db"
[control]
socket = "store.sock"
"""


def measure(level: Level, durable: bool, events: int = EVENTS) -> dict[str, float | str | bool]:
    """Events a second by the clock, the node's CPU for each, and what of it all the disk allowed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "store.toml").write_text(CONFIG.format(durable=str(durable).lower()))
        command = [sys.executable, "-m", "carrycast.cli", "node", str(folder / "store.toml")]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            process.stderr.readline()
            with connect(str(folder / "store.sock"), 10) as client:
                begin = time.perf_counter()
                count = sum(1 for _ in client.publish_all((({"n": n}, PAYLOAD) for n in range(events)), level=level))
                elapsed_s = time.perf_counter() - begin
            process.send_signal(signal.SIGKILL)
            usage = os.wait4(process.pid, 0)[2]
            process.returncode = -signal.SIGKILL
    return {
        "level": level,
        "durable": durable,
        "events_per_s": count / elapsed_s,
        "node_us_per_event": (usage.ru_utime + usage.ru_stime) / count * 1e6,
        "sync_ms": _sync_ms(),
    }


def _sync_ms(times: int = 20) -> float:
    """What one sync of the same disk takes: the yardstick."""
    with tempfile.NamedTemporaryFile() as file:
        begin = time.perf_counter()
        for _ in range(times):
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
        return (time.perf_counter() - begin) / times * 1e3


if __name__ == "__main__":
    for level, durable in (("accepted", False), ("accepted", True), ("stored", True)):
        print(json.dumps(measure(level, durable)))  # type: ignore[arg-type]
