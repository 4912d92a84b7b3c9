"""Nodes with keys for tests: an operator that issues the certificates that a test needs."""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from carrycast.core.model import Event, NodeId, Scalar
from carrycast.node.config import NodeConfig
from carrycast.node.security.certificate import FORMAT, GRACE_S, Certificate, issue_certificate
from carrycast.node.security.config import Keys
from carrycast.node.security.event_signatures import EventSignatures
from carrycast.node.security.identity import SIGNATURE_BATCH
from carrycast.node.security.primitives import SigningKey
from carrycast.node.security.revocations import NEVER_S, RevocationList, RevocationTimes, revoke_nodes
from carrycast.node.security.verification import MessageVerifier


def private_of(name: object) -> bytes:
    """Return a private key that is always the same for a name."""
    return str(name).encode().ljust(32, b".")[:32]


class Operator:
    """The operator of a network."""

    def __init__(self, name: str = "operator") -> None:
        self.key = SigningKey(private_of(name))
        self._list = RevocationList()

    def keys(
        self,
        node: NodeId,
        publish: str | None = None,
        subscribe: str | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        issued_s: float | None = None,
        expires_s: float = math.inf,
        list_file: Path | None = None,
        signature_batch: int = SIGNATURE_BATCH,
        grace_s: float = GRACE_S,
    ) -> Keys:
        """The keys of a node, with its certificate."""
        private = private_of(node)
        certificate = Certificate(
            FORMAT,
            node,
            SigningKey(private).public,
            f"node-{node}",
            time.time() if issued_s is None else issued_s,
            min(expires_s, 1e12),
            publish,
            subscribe,
            dict(attributes or {}),
            grace_s,
        )
        return Keys(
            private, None, issue_certificate(self.key, certificate), self.key.public, list_file, signature_batch
        )

    def keyed(self, config: NodeConfig, *policy: object, **more: object) -> NodeConfig:
        """The same node with keys."""
        return replace(config, keys=self.keys(config.node, *policy, **more))  # type: ignore[arg-type]  # as `keys`

    def revoked(self, *nodes: NodeId, until_s: float = NEVER_S) -> bytes:
        """Return a newer revocation list that has these nodes, too."""
        self._list = revoke_nodes(
            self.key, self._list, dict.fromkeys(nodes, RevocationTimes(time.time(), until_s)), time.time()
        )
        return self._list.encode_delta(0)

    def verifier(self, node: NodeId, **more: object) -> MessageVerifier:
        """Return the verifier of a node."""
        return self.keys(node, **more).make_verifier()  # type: ignore[arg-type]  # as `keys`


def sign_event(signatures: EventSignatures, event: Event) -> Event:
    """Return an event with its signature."""
    [found] = signatures.sign([event])
    assert isinstance(found, Event)
    return found
