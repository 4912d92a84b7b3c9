"""Links that nobody can leave, beside a radio or without one: as a scenario writes them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.scenario.draws import check_selection


class Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[wires]]` of a scenario: an interface over which some nodes are always linked."""

    interface: Annotated[str, Meta(min_length=1, max_length=32)] = "ethernet"
    between: list[tuple[int, int]] = []
    tree: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Instead: all nodes in a balanced tree from node 0, each with so many children; 1 makes a line."""
    delay_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0001
    rate_bps: Annotated[float, Meta(ge=1, le=1e12)] | None = None
    queue: Annotated[int, Meta(ge=1, le=1_000_000)] = 50

    def pairs(self, nodes: int) -> list[tuple[int, int]]:
        """Whom it joins, in a network of so many nodes."""
        if self.tree is None:
            return self.between
        return [((node - 1) // self.tree, node) for node in range(1, nodes)]

    def radio(self) -> DiskRadio:
        """A wire carries frames as a radio does that nobody can leave."""
        return DiskRadio(delay_s=self.delay_s, rate_bps=self.rate_bps, queue=self.queue)


def check_wires(wires: list[Wire], nodes: int, where: str) -> None:
    """Refuse, at loading, wires that join nobody."""
    for place, wire in enumerate(wires):
        at = f"{where}: wires[{place}]"
        if bool(wire.between) == (wire.tree is not None):
            raise UserError(f"{at}: needs either between, pairs of nodes, or tree, how many children each has")
        for pair in wire.between:
            check_selection(list(pair), nodes, {}, f"{at}.between")
            if pair[0] == pair[1]:
                raise UserError(f"{at}.between: a wire joins two different nodes, not {pair[0]} twice")
    interfaces = [wire.interface for wire in wires]
    if len(set(interfaces)) != len(interfaces) or "radio" in interfaces:
        raise UserError(f"{where}: wires: each has an interface name of its own, and none is 'radio'")
