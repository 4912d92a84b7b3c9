"""Routers whose handlers are in the core. The Python routers are the specification."""

from collections.abc import Mapping
from random import Random
from typing import cast

from carrycast import _native
from carrycast.core.model import NodeId
from carrycast.core.protocol import Host, Port, Router, RouterUpcalls, Settings, StackPlan
from carrycast.sim.engine.host import SimHost

_HANDLERS = (
    *("on_start", "on_stop", "on_timer", "on_message", "on_overheard", "on_sent", "on_link_up", "on_link_down"),
    *("on_route", "on_route_each", "hops_to"),
)


def use_native_router(stack: StackPlan) -> None:
    """Replace the router of a stack by the one in the core, if there is one that covers its settings.

    A class that only inherits from a router is another router.
    """
    router, settings = stack.router, stack.router_settings
    if router is None or settings is None or "native_parts" not in vars(router):
        return
    parts = router.native_parts(settings)
    if parts is not None:
        stack.router = _make_native(router, parts)


def _make_native(router: type[Router], parts: Mapping[str, object]) -> type[Router]:
    """A router with the handlers of the core and all other properties of a Python router."""

    def initialize(
        self: Router, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        Router.__init__(self, node, settings, port, host, rng, up)
        assert isinstance(host, SimHost)
        asks_host = host.has_position_errors
        core = _native.Router(router.name, parts, port, settings, host, asks_host, host.incarnation, rng, up)
        for name in _HANDLERS:
            setattr(self, name, getattr(core, name))

    return cast(type[Router], type(f"Native{router.__name__}", (router,), {"__init__": initialize}))
