"""The security policy of a node: open to everybody, or a network with keys."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from carrycast.core.model import Event, Request, Scalar, Subscription
from carrycast.core.protocol import StackPlan
from carrycast.errors import UserError, WorkError
from carrycast.node.api import Health
from carrycast.node.config import NodeConfig
from carrycast.node.link import FrameChannel, LinkAdapter, PlainChannel
from carrycast.node.recorder import LOG
from carrycast.node.runtime import ApplicationLayer

if TYPE_CHECKING:
    from carrycast.node.security import Keys

Asking = TypeVar("Asking", bound=Subscription | Request)

OPEN = "this node is open: without [keys], whoever is in reach may read, publish and forge"


class SecurityPolicy:
    """A node without keys: nothing is signed, encrypted or verified."""

    warning: str | None = OPEN
    """Printed when the node starts."""

    def make_channel(self, adapter: LinkAdapter) -> FrameChannel:
        """Make the frame channel of an interface."""
        return PlainChannel(adapter)

    def secure_plan(self, plan: StackPlan) -> StackPlan:
        """Return the stack with codecs that verify messages."""
        return plan

    def secure_applications(self, applications: ApplicationLayer, on_drop: Callable[[str], None]) -> ApplicationLayer:
        """Return the application layer with verification of events."""
        return applications

    def sign(self, events: Sequence[Event]) -> Sequence[Event | UserError]:
        """Sign events of this node; a UserError in place of one that it may not publish."""
        return events

    def attach_certificate(self, asking: Asking) -> Asking:
        """Add the node's certificate to a subscription or a request."""
        return asking

    def check_subscription(self, filter: str, attributes: Mapping[str, Scalar] | None) -> None:
        """Raise a UserError if the node may not subscribe to this, or request it."""

    def start(self, certify_again: Callable[[], None]) -> Callable[[], None]:
        """Start with the node: call `certify_again` when the node gets a new certificate. Returns the function that
        stops this."""
        return lambda: None

    def check_health(self, failure: str | None) -> Health:
        """Return the health of the node; `failure` is a failure of another part."""
        return Health(failure)

    @property
    def certificate_ends_s(self) -> float | None:
        """When the node's certificate expires, if it has one."""
        return None

    def reload(self) -> None:
        """Read the files of keys and revocations again."""


class KeyedSecurityPolicy(SecurityPolicy):
    """A node of a network with keys."""

    warning = None

    def __init__(self, config: NodeConfig, keys: "Keys") -> None:
        from carrycast.node.security import make_monitor

        self._config = config
        self._keys = keys
        self._verifier = verifier = keys.make_verifier()
        self.membership = verifier.membership
        self._monitor = make_monitor(verifier.membership, keys.warn_days)
        self.sign = verifier.signatures.sign  # type: ignore[method-assign]  # one call less per event
        self.attach_certificate = verifier.attach_certificate  # type: ignore[method-assign]
        self.check_subscription = verifier.check_own_subscription  # type: ignore[method-assign]

    def make_channel(self, adapter: LinkAdapter) -> FrameChannel:
        from carrycast.node.security import SealedChannel

        return SealedChannel(adapter, self._config.node, self.membership, self._config.interfaces[0].quotas.neighbors)

    def secure_plan(self, plan: StackPlan) -> StackPlan:
        return self._verifier.add_verification(plan)

    def secure_applications(self, applications: ApplicationLayer, on_drop: Callable[[str], None]) -> ApplicationLayer:
        from carrycast.node.runtime import VerifiedApplicationLayer

        self._verifier.on_drop = on_drop
        return VerifiedApplicationLayer(applications, self._verifier.signatures, on_drop)

    def start(self, certify_again: Callable[[], None]) -> Callable[[], None]:
        if self._monitor is None:
            return super().start(certify_again)
        watch, renewed = self._monitor, self.membership.renewed
        renewed.append(certify_again)
        watch.start()

        def stop() -> None:
            watch.stop()
            renewed.remove(certify_again)

        return stop

    def check_health(self, failure: str | None) -> Health:
        own = self.membership.find_problem()
        return Health(failure or own, None if self._monitor is None or own else self._monitor.make_warning())

    @property
    def certificate_ends_s(self) -> float | None:
        return None if self._monitor is None else self._monitor.ends_s

    def reload(self) -> None:
        # Each on its own: an invalid certificate must not keep a node from reading the revocation list.
        for what, read in (("the revocation list", self._reload_list), ("the certificate", self._reload_keys)):
            try:
                LOG.info("%s", read())
            except (UserError, WorkError, OSError) as error:
                LOG.error("%s was not read again: %s", what, error)

    def _reload_list(self) -> str:
        from carrycast.node.security import Certified

        return self.membership.reload() if isinstance(self.membership, Certified) else "no revocation list"

    def _reload_keys(self) -> str:
        from carrycast.node.security import Certified, SigningKey, format_date

        before, after = self._keys, self._keys.reread()
        if (before.secret, before.operator) != (after.secret, after.operator):
            raise UserError("keys.network and keys.operator are of another network; restart the node")
        if (before.private, before.certificate) == (after.private, after.certificate):
            return "key and certificate were read again, nothing new"
        if not isinstance(self.membership, Certified):
            raise UserError("keys.identity is another, and makes this another node; restart it")
        self.membership.renew(SigningKey(after.private), after.certificate)
        self._keys = after
        assert self._monitor is not None
        self._monitor.check()
        return f"a new certificate counts, until {format_date(self.membership.ends_s)}"


def make_security_policy(config: NodeConfig) -> SecurityPolicy:
    """Make the policy of a configuration; an open node logs that it is open."""
    if config.keys is None:
        LOG.info("%s: %s", config.name, OPEN)
        return SecurityPolicy()
    return KeyedSecurityPolicy(config, config.keys)
