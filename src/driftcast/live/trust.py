"""Whom a node believes: everybody, or the members of a network with keys."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from driftcast.errors import UserError, WorkError
from driftcast.live.config import NodeConfig
from driftcast.live.host.applications_above import Applications
from driftcast.live.link.transport import Transport
from driftcast.live.record import LOG
from driftcast.model import Event, Request, Scalar, Subscription
from driftcast.protocol import StackPlan

if TYPE_CHECKING:
    from driftcast.live.keys.vetting import Vetting

Asking = TypeVar("Asking", bound=Subscription | Request)

OPEN = "this node is open: without [keys], whoever is in reach may read, publish and forge"


class Trust:
    """A node without keys: nothing is signed, sealed or looked at."""

    warning: str | None = OPEN
    """For who runs the node."""

    def transport(self, transport: Transport) -> Transport:
        """How datagrams leave and arrive."""
        return transport

    def plan(self, plan: StackPlan) -> StackPlan:
        """How messages are read."""
        return plan

    def applications(self, applications: Applications, dropped: Callable[[str], None]) -> Applications:
        """How events reach applications."""
        return applications

    def sign(self, events: Sequence[Event]) -> Sequence[Event | UserError]:
        """Events of this node as they travel, or why one may not."""
        return events

    def certified(self, asking: Asking) -> Asking:
        """A subscription, or a request, of this node as it travels."""
        return asking

    def check_subscription(self, filter: str, attributes: Mapping[str, Scalar] | None) -> None:
        """A UserError if to ask for that, now or for what is stored, is not allowed here."""

    def reload(self) -> None:
        """Look again at what may have changed in the files."""


class KeyedTrust(Trust):
    """A node of a network with keys."""

    warning = None

    def __init__(self, config: NodeConfig, vetting: "Vetting") -> None:
        self._config = config
        self._vetting = vetting
        self.membership = vetting.membership
        self.sign = vetting.signatures.sign  # type: ignore[method-assign]  # the same, a call less for each event
        self.certified = vetting.certified  # type: ignore[method-assign]
        self.check_subscription = vetting.check_own  # type: ignore[method-assign]

    def transport(self, transport: Transport) -> Transport:
        from driftcast.live.link.sealed import SealedTransport

        return SealedTransport(
            transport, self._config.node, self.membership, self._config.interfaces[0].quotas.neighbors
        )

    def plan(self, plan: StackPlan) -> StackPlan:
        return self._vetting.plan(plan)

    def applications(self, applications: Applications, dropped: Callable[[str], None]) -> Applications:
        from driftcast.live.host.vetted import VettedApplications

        self._vetting.dropped = dropped
        return VettedApplications(applications, self._vetting.signatures, dropped)

    def reload(self) -> None:
        try:
            newer = self.membership.reload()
        except (UserError, WorkError, OSError) as error:
            LOG.error("the list of revocations was not read again: %s", error)
        else:
            LOG.info("the list of revocations was read again: %s", "a newer one" if newer else "nothing new")


def trust_of(config: NodeConfig) -> Trust:
    """As a configuration says; an open node says in its log that it is one."""
    if config.keys is None:
        LOG.info("%s: %s", config.name, OPEN)
        return Trust()
    return KeyedTrust(config, config.keys.vetting())
