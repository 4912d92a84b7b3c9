"""Where applications come in: the control channel, its client, and who subscribes to what."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.node.api.arguments import (
        AddressLike as AddressLike,
        FilterLike as FilterLike,
        Payload as Payload,
        filter_text as filter_text,
        plain_attributes as plain_attributes,
        plain_bytes as plain_bytes,
    )
    from carrycast.node.api.async_client import AsyncClient as AsyncClient
    from carrycast.node.api.client import (
        Client as Client,
        ConnectionLostError as ConnectionLostError,
        connect as connect,
    )
    from carrycast.node.api.client_publishing import BUSY as BUSY, POLL_S as POLL_S, WAIT_S as WAIT_S
    from carrycast.node.api.control import ControlServer as ControlServer
    from carrycast.node.api.durable_subscription import Consumer as Consumer, LocalDelivery as LocalDelivery
    from carrycast.node.api.messages import Level as Level, Status as Status, WatchResponse as WatchResponse
    from carrycast.node.api.metrics import Health as Health, MetricsServer as MetricsServer
    from carrycast.node.api.node_interface import NodeInterface as NodeInterface
    from carrycast.node.api.notifications import retention_reports as retention_reports
    from carrycast.node.api.requests import (
        LocalAdvertisements as LocalAdvertisements,
        LocalRequests as LocalRequests,
        OnAnswer as OnAnswer,
        OnClosed as OnClosed,
    )
    from carrycast.node.api.subscriptions import ClientSubscriptions as ClientSubscriptions, Listener as Listener

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "arguments": "AddressLike FilterLike Payload filter_text plain_attributes plain_bytes",
        "async_client": "AsyncClient",
        "client": "Client ConnectionLostError connect",
        "client_publishing": "BUSY POLL_S WAIT_S",
        "control": "ControlServer",
        "durable_subscription": "Consumer LocalDelivery",
        "messages": "Level Status WatchResponse",
        "metrics": "Health MetricsServer",
        "node_interface": "NodeInterface",
        "notifications": "retention_reports",
        "requests": "LocalAdvertisements LocalRequests OnAnswer OnClosed",
        "subscriptions": "ClientSubscriptions Listener",
    },
)
