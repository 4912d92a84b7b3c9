"""Where a node receives by UDP, for tests that have sockets of their own."""

from carrycast.node.link.socket_address import SocketAddress
from carrycast.node.node import LiveNode


def udp_address(node: LiveNode) -> SocketAddress:
    address = node.address
    assert isinstance(address, tuple)
    host, port = address
    return host, port
