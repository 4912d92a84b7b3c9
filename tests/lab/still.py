"""An adapter without a socket, which receives what it is given."""

from carrycast.node.link.adapter import LinkAddress, ReceiveDatagram, ReportDrop
from carrycast.node.link.socket_address import SocketAddress
from carrycast.node.link.udp import UdpAdapter


class Still(UdpAdapter):
    """For tests of what lies between a socket and a node."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0)

    @property
    def address(self) -> SocketAddress:
        return ("here", 1)

    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        self._receive = receive

    def hear(self, datagram: bytes, address: LinkAddress) -> None:
        """A datagram has come."""
        assert self._receive is not None
        self._receive(datagram, address, False, 0)

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        return True

    def close(self) -> None:
        self._receive = None
