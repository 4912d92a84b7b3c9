"""The live environment: the same protocols on real sockets, with asyncio.

Applications use `carrycast.node.api.client.connect`; `carrycast.node.node.LiveNode` runs a node within a program.
Exports are imported lazily, so that the processes of processors import only the modules that they need.
"""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.node.commands import (
        PATIENCE_S as PATIENCE_S,
        SubscribeArguments as SubscribeArguments,
        move as move,
        parse_attributes as parse_attributes,
        publish as publish,
        publish_lines as publish_lines,
        run_node as run_node,
        status as status,
        subscribe as subscribe,
    )
    from carrycast.node.config import NodeConfig as NodeConfig
    from carrycast.node.embedded import Node as Node
    from carrycast.node.event_feed import ActiveSubscription as ActiveSubscription, FeedEvent as FeedEvent
    from carrycast.node.node import LiveNode as LiveNode
    from carrycast.node.trace_files import TraceConfig as TraceConfig

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "commands": "PATIENCE_S SubscribeArguments move parse_attributes publish publish_lines run_node status "
        "subscribe",
        "config": "NodeConfig",
        "embedded": "Node",
        "event_feed": "ActiveSubscription FeedEvent",
        "node": "LiveNode",
        "trace_files": "TraceConfig",
    },
)
