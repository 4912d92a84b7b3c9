"""The stack of a node with a certificate: what its applications ask for travels with the certificate."""

from collections.abc import Callable
from typing import Any

import msgspec

from carrycast.core.model import Request, Subscription, SubscriptionId
from carrycast.node.runtime.runtime import Runtime


class CertifyingRuntime(Runtime):
    """What `certified` makes of the subscriptions and requests of this node is what others are told."""

    def __init__(self, certified: Callable[[Any], Any], *arguments: Any) -> None:
        """The others as those of `Runtime`."""
        self._certified = certified
        self._standing: dict[SubscriptionId, Subscription] = {}
        super().__init__(*arguments)

    def on_subscribe(self, now: float, subscription: Subscription) -> bool:
        stands = super().on_subscribe(now, self._certified(subscription))
        if stands:
            self._standing[subscription.id] = subscription
        return stands

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._standing.pop(subscription, None)
        super().on_unsubscribe(now, subscription)

    def on_request(self, now: float, request: Request) -> None:
        super().on_request(now, self._certified(request))

    def certify_again(self) -> None:
        """The node has another certificate. Subscriptions that went out with the one before end with that one, so they
        go out again; their history has come already."""
        for subscription in list(self._standing.values()):
            again = msgspec.structs.replace(subscription, history=False)
            super().on_subscribe(self.now, self._certified(again))
