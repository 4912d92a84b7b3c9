"""The yardstick for epidemic: the same exchange of messages as a straightforward SimPy program, a process per node.

No protocol layer, no encoding, no checks, no metrics but the copies: a node is a generator that reads its inbox. A
message arrives one delay after it was sent, if the two nodes are still linked.
"""

from collections.abc import Generator
from typing import Any

import simpy

from carrycast.sim.contacts.plan import ContactPlan

DELAY_S = 0.001


class Node:
    """One node: what it holds, and what it knows of its neighbors."""

    def __init__(self, net: "Net", id: int) -> None:
        self.net = net
        self.id = id
        self.inbox = simpy.Store(net.env)
        self.held: dict[int, bytes] = {}
        self.asked: dict[int, int] = {}
        self.known: dict[int, set[int]] = {}
        net.env.process(self.run())

    def run(self) -> Generator[simpy.Event, Any, None]:
        """Read the inbox for ever."""
        while True:
            kind, other, content = yield self.inbox.get()
            if kind == "up":
                self.known[other] = set()
                if self.held:
                    self.net.send(self.id, other, "summary", tuple(self.held))
            elif kind == "down":
                self.known.pop(other, None)
                self.ask_again(other)
            elif kind == "summary":
                self.on_summary(other, content)
            elif kind == "ask":
                for event in content:
                    if event in self.held:
                        self.net.send(self.id, other, "transfer", (event, self.held[event]))
                        if other in self.known:
                            self.known[other].add(event)
            elif kind == "transfer":
                event, payload = content
                if other in self.known:
                    self.known[other].add(event)
                if event not in self.held:
                    self.net.copies += 1
                    self.accept(event, payload)
            elif kind == "publish":
                self.accept(*content)

    def on_summary(self, other: int, events: tuple[int, ...]) -> None:
        """Ask for what is lacking."""
        if other in self.known:
            self.known[other].update(events)
        self.ask(other, tuple(event for event in events if event not in self.held and event not in self.asked))

    def ask(self, other: int, events: tuple[int, ...]) -> None:
        """For these, of this neighbor."""
        if events:
            self.asked.update(dict.fromkeys(events, other))
            self.net.send(self.id, other, "ask", events)

    def ask_again(self, gone: int) -> None:
        """What a neighbor that has gone was asked for, ask of another that holds it."""
        for event in [event for event, other in self.asked.items() if other == gone]:
            del self.asked[event]
            holder = next((other for other, known in self.known.items() if event in known), None)
            if holder is not None:
                self.ask(holder, (event,))

    def accept(self, event: int, payload: bytes) -> None:
        """Keep it and offer it to neighbors not known to hold it."""
        self.held[event] = payload
        self.asked.pop(event, None)
        lacking = [other for other, known in self.known.items() if event not in known]
        if len(lacking) == 1:
            self.net.send(self.id, lacking[0], "summary", (event,))
        elif lacking:
            self.net.broadcast(self.id, "summary", (event,))


class Net:
    """The nodes, their links, and the messages between them."""

    def __init__(self, plan: ContactPlan, publications: list[tuple[float, int, bytes]]) -> None:
        self.env = simpy.Environment()
        self.copies = 0
        self.links: list[dict[int, None]] = [{} for _ in range(plan.nodes)]
        self.nodes = [Node(self, id) for id in range(plan.nodes)]
        self.env.process(self.move(plan))
        self.env.process(self.publish(publications))

    def send(self, sender: int, target: int, kind: str, content: object) -> None:
        """To one neighbor."""
        arrival = self.env.timeout(DELAY_S)
        arrival.callbacks.append(lambda _: self.arrive(sender, target, kind, content))

    def broadcast(self, sender: int, kind: str, content: object) -> None:
        """To all neighbors."""
        arrival = self.env.timeout(DELAY_S)
        arrival.callbacks.append(lambda _: self.heard(sender, kind, content))

    def heard(self, sender: int, kind: str, content: object) -> None:
        """A broadcast is there, at everybody who is linked now."""
        for target in self.links[sender]:
            self.nodes[target].inbox.put((kind, sender, content))

    def arrive(self, sender: int, target: int, kind: str, content: object) -> None:
        """A unicast is there, if the link still is."""
        if target in self.links[sender]:
            self.nodes[target].inbox.put((kind, sender, content))

    def move(self, plan: ContactPlan) -> Generator[simpy.Event, Any, None]:
        """Links come and go."""
        changes = plan.changes(plan.duration_s)
        rows = zip(changes.time_s.tolist(), changes.up.tolist(), changes.a.tolist(), changes.b.tolist(), strict=True)
        for time_s, up, a, b in rows:
            if time_s > self.env.now:
                yield self.env.timeout(time_s - self.env.now)
            for one, other in ((a, b), (b, a)):
                if up:
                    self.links[one][other] = None
                else:
                    self.links[one].pop(other, None)
                self.nodes[one].inbox.put(("up" if up else "down", other, None))

    def publish(self, publications: list[tuple[float, int, bytes]]) -> Generator[simpy.Event, Any, None]:
        """Events come into being."""
        for event, (time_s, node, payload) in enumerate(publications):
            yield self.env.timeout(time_s - self.env.now)
            self.nodes[node].inbox.put(("publish", node, (event, payload)))


def copies(plan: ContactPlan, publications: list[tuple[float, int, bytes]]) -> int:
    """Run it; how many copies were transferred."""
    net = Net(plan, publications)
    net.env.run(until=plan.duration_s)
    return net.copies
