"""Security of nodes with keys: encrypted links, membership by certificate or shared secret, signatures of events."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.node.security.certificate_monitor import make_monitor as make_monitor
    from carrycast.node.security.commands import (
        certify as certify,
        describe_key_file as describe_key_file,
        issuance_log_path as issuance_log_path,
        make_key_pair as make_key_pair,
        make_network_secret as make_network_secret,
        revoke as revoke,
    )
    from carrycast.node.security.config import Keys as Keys, read_keys as read_keys
    from carrycast.node.security.event_signatures import EventSignatures as EventSignatures
    from carrycast.node.security.identity import KeysSection as KeysSection, derive_node_id as derive_node_id
    from carrycast.node.security.key_files import KeyKind as KeyKind, read_key as read_key
    from carrycast.node.security.membership import Certified as Certified, format_date as format_date
    from carrycast.node.security.primitives import SigningKey as SigningKey
    from carrycast.node.security.revocations import NEVER_S as NEVER_S
    from carrycast.node.security.sealed import SealedChannel as SealedChannel

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "certificate_monitor": "make_monitor",
        "commands": "certify describe_key_file issuance_log_path make_key_pair make_network_secret revoke",
        "config": "Keys read_keys",
        "event_signatures": "EventSignatures",
        "identity": "KeysSection derive_node_id",
        "key_files": "KeyKind read_key",
        "membership": "Certified format_date",
        "primitives": "SigningKey",
        "revocations": "NEVER_S",
        "sealed": "SealedChannel",
    },
)
