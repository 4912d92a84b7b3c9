"""The UDP address of a node, for tests that open their own sockets."""

from carrycast.node.link.socket_address import SocketAddress
from carrycast.node.node import LiveNode


def udp_address(node: LiveNode) -> SocketAddress:
    address = node.address
    assert isinstance(address, tuple)
    host, port = address
    return host, port
