"""A link adapter that receives only from a given set of nodes, so that links come and go on one machine."""

import asyncio
import random

from carrycast.core.model import NodeId
from carrycast.node.link import (
    AdapterSettings,
    AddressScope,
    LinkAdapter,
    LinkAddress,
    ReceiveDatagram,
    ReportDrop,
    UdpAdapter,
    UdpSettings,
    read_sender,
)


class ReachAdapter(LinkAdapter):
    """Receives only from the nodes in `reach`, given by address or by node id. The set may change at any time.

    Each datagram takes `delay_s`, and is received if its sender is in `reach` when it arrives. A fraction `loss` of the
    datagrams is lost at random. As on the air, the node does not notice lost datagrams; `lost` counts them.
    """

    name = "reach"
    settings_type = UdpSettings

    def __init__(self, inner: LinkAdapter, delay_s: float = 0.0) -> None:
        self.mtu_bytes = inner.mtu_bytes
        self.reach: set[LinkAddress | NodeId] = set()
        self.lost = 0
        self.loss = 0.0
        self._random = random.Random(0)
        self._inner = inner
        self._delay_s = delay_s
        self._closed = False
        self._receive: ReceiveDatagram | None = None

    @property
    def address(self) -> LinkAddress:
        return self._inner.address

    @property
    def broadcast_address(self) -> LinkAddress | None:
        return self._inner.broadcast_address

    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        self._receive = receive
        self._inner.open(self._on_datagram, report_drop)

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        return self._inner.send(datagram, address)

    def close(self) -> None:
        self._closed = True
        self._inner.close()

    async def resolve_address(self, address: LinkAddress) -> LinkAddress:
        return await self._inner.resolve_address(address)

    @classmethod
    def parse_address(cls, text: str) -> LinkAddress:
        return UdpAdapter.parse_address(text)

    @classmethod
    def format_address(cls, address: LinkAddress) -> str:
        return UdpAdapter.format_address(address)

    @classmethod
    def scope_of(cls, address: LinkAddress) -> AddressScope:
        return UdpAdapter.scope_of(address)

    @classmethod
    def from_settings(cls, settings: AdapterSettings, queue: int) -> "ReachAdapter":
        return cls(UdpAdapter.from_settings(settings, queue))

    def _on_datagram(self, datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
        if self._delay_s > 0:
            waited_ms += int(self._delay_s * 1000)
            asyncio.get_running_loop().call_later(self._delay_s, self._arrive, datagram, address, to_group, waited_ms)
        else:
            self._arrive(datagram, address, to_group, waited_ms)

    def _arrive(self, datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
        assert self._receive is not None
        if self._closed:
            return
        if self.loss and self._random.random() < self.loss:
            self.lost += 1
        elif address in self.reach or read_sender(datagram) in self.reach:
            self._receive(datagram, address, to_group, waited_ms)
        else:
            self.lost += 1
