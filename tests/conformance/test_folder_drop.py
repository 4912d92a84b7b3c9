"""A new protocol is one folder: dropped anywhere on the search path, it is found, listed and run by name."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

SOURCE = Path(__file__).parents[2] / "src"

INIT = """
from carrycast.protocols.shout.protocol import Shout as PROTOCOL
"""
PROTOCOL = '''
"""Tells the neighbors, who tell nobody."""

from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.protocol import Protocol
from carrycast.core.wire import EventMessage


class Shouted(EventMessage, frozen=True, gc=False, tag=1):
    """An event, shouted."""


class Shout(Protocol):
    name = "shout"
    summary = "one broadcast per event"
    messages = (Shouted,)

    def __init__(self, node, settings, port, host, rng):
        super().__init__(node, settings, port, host, rng)
        self.local = LocalSubscriptions(port)

    def on_publish(self, now, event):
        self.local.deliver(event, 0)
        self.port.broadcast(Shouted(event, 1, event.lease_s))

    def on_subscribe(self, now, subscription):
        self.local.add(subscription)

    def on_message(self, now, sender, message, via):
        self.local.deliver(message.event, message.hops)
'''
SCENARIO = """
duration_s = 20.0
nodes = 3
mobility = { model = "line", spacing_m = 100.0 }
radio = { model = "disk", range_m = 120.0 }
protocol = { name = "shout" }
publish = [{ nodes = [0], count = 1 }]
subscribe = [{}]
"""
SCRIPT = """
import json, sys
from pathlib import Path
from carrycast.core.protocol.registry import protocol_names
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import load_scenario
done = run(load_scenario(Path(sys.argv[1])), 1)
print(json.dumps({"names": protocol_names(), "protocol": done.protocol, "delivered": done.metrics["delivered"]}))
"""


def test_a_folder_dropped_on_the_search_path_is_a_protocol(tmp_path: Path) -> None:
    folder = tmp_path / "carrycast" / "protocols" / "shout"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(INIT)
    (folder / "protocol.py").write_text(PROTOCOL)
    scenario = tmp_path / "shout.toml"
    scenario.write_text(SCENARIO)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(scenario)],
        env=os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "shout" in told["names"]
    assert "flooding" in told["names"]
    assert told["protocol"] == "shout"
    assert told["delivered"] == 1, "node 1 hears it, node 2 is too far"
