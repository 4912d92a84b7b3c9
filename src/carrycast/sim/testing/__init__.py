"""A kit for testing protocols: small networks in the real simulator that a test drives step by step.

>>> net = Net.line(3, protocol="flooding")
>>> hot = net.subscribe(2, "celsius > 30")
>>> event = net.publish(0, {"celsius": 31})
>>> net.run(5)
>>> net.list_delivered(2) == [event]
True
"""

from carrycast.sim.testing.example_scenarios import example_tables, examples
from carrycast.sim.testing.isolation import IsolatedHost, RecordedUpcalls, isolate_protocol, isolate_router
from carrycast.sim.testing.net import Net

__all__ = ["IsolatedHost", "Net", "RecordedUpcalls", "isolate_protocol", "isolate_router", "example_tables", "examples"]
