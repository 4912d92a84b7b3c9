"""The link layer of a node: adapters, frames, reliable unicast, path validation, rate limits, link costs."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.node.link.adapter import (
        AdapterSettings as AdapterSettings,
        AddressScope as AddressScope,
        AddressUnavailableError as AddressUnavailableError,
        LinkAdapter as LinkAdapter,
        LinkAddress as LinkAddress,
        ReceiveDatagram as ReceiveDatagram,
        ReportDrop as ReportDrop,
    )
    from carrycast.node.link.channel import (
        FrameChannel as FrameChannel,
        PlainChannel as PlainChannel,
        ReceiveFrame as ReceiveFrame,
    )
    from carrycast.node.link.config import (
        UDP as UDP,
        DiscoverySection as DiscoverySection,
        InterfaceConfig as InterfaceConfig,
        LinkSettings as LinkSettings,
        Name as Name,
        Section as Section,
        parse_interfaces as parse_interfaces,
        parse_single_interface as parse_single_interface,
    )
    from carrycast.node.link.frame import (
        COOKIE_BYTES as COOKIE_BYTES,
        LINK_HEADER_BYTES as LINK_HEADER_BYTES,
        MAGIC as MAGIC,
        MAX_BODY_BYTES as MAX_BODY_BYTES,
        LinkFlaw as LinkFlaw,
        LinkFrame as LinkFrame,
        LinkKind as LinkKind,
        pack as pack,
        read_associated_data as read_associated_data,
        read_sender as read_sender,
        unpack as unpack,
    )
    from carrycast.node.link.interface import (
        RESOLVE_S as RESOLVE_S,
        LiveInterface as LiveInterface,
        Unicast as Unicast,
        resolve_all_peers as resolve_all_peers,
    )
    from carrycast.node.link.moderation import InterruptModeration as InterruptModeration
    from carrycast.node.link.rate_limit import (
        HandshakeLimiter as HandshakeLimiter,
        LogLimiter as LogLimiter,
        QuotaSettings as QuotaSettings,
    )
    from carrycast.node.link.replay_window import ReplayCheck as ReplayCheck, ReplayWindow as ReplayWindow
    from carrycast.node.link.socket_address import (
        Port as Port,
        SocketAddress as SocketAddress,
        format_socket_address as format_socket_address,
        parse_socket_address as parse_socket_address,
    )
    from carrycast.node.link.udp import UdpAdapter as UdpAdapter, UdpSettings as UdpSettings

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "adapter": "AdapterSettings AddressScope AddressUnavailableError LinkAdapter LinkAddress "
        "ReceiveDatagram ReportDrop",
        "channel": "FrameChannel PlainChannel ReceiveFrame",
        "config": "DiscoverySection InterfaceConfig LinkSettings Name Section UDP parse_interfaces "
        "parse_single_interface",
        "frame": "COOKIE_BYTES LINK_HEADER_BYTES LinkFlaw LinkFrame LinkKind MAGIC MAX_BODY_BYTES "
        "pack read_associated_data read_sender unpack",
        "interface": "LiveInterface RESOLVE_S Unicast resolve_all_peers",
        "moderation": "InterruptModeration",
        "rate_limit": "HandshakeLimiter LogLimiter QuotaSettings",
        "replay_window": "ReplayCheck ReplayWindow",
        "socket_address": "Port SocketAddress format_socket_address parse_socket_address",
        "udp": "UdpAdapter UdpSettings",
    },
)
