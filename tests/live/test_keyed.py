"""Nodes with keys: members communicate, and other nodes are rejected and logged."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from carrycast.core.model import Event, SubscriptionId
from carrycast.errors import UserError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.node import LiveNode
from carrycast.node.security.certificate import read_certificate
from carrycast.node.security.config import Keys
from carrycast.node.security.event_signatures import MAX_SIGNED_BYTES
from carrycast.node.security.identity import derive_node_id
from carrycast.node.security.key_files import KeyKind, format_key, write_key
from carrycast.node.security.membership import Certified, Member, Membership, Rejection
from carrycast.node.security.primitives import SigningKey
from carrycast.node.security_policy import KeyedSecurityPolicy
from tests.live.conftest import MakeConfig, Run
from tests.live.keyed import Operator, private_of

OPERATOR = Operator()


def with_secret(config: MakeConfig, name: str, secret: bytes = bytes(32), protocol: str = "flooding") -> LiveNode:
    private = private_of(name)
    node = derive_node_id(SigningKey(private).public)
    return LiveNode(replace(config(node, protocol), keys=Keys(private, secret)))


def acquaint(*nodes: LiveNode) -> None:
    for one in nodes:
        for other in nodes:
            if other is not one:
                one.add_peer(other.address)


@pytest.mark.parametrize("protocol", ["flooding", "epidemic"])
def test_nodes_with_certificates_deliver_along_a_line_what_was_published(
    protocol: str, config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        got: list[bytes] = []

        def listener(subscription: SubscriptionId, event: Event, hops: int) -> None:
            got.append(event.payload)

        async with LoopbackNetwork(OPERATOR.keyed(config(id, protocol)) for id in range(3)) as network:
            network.line()
            await network.wait_until_discovered(10)
            network.nodes[2].subscribe("n > 0", listener)
            for n in range(20):
                network.nodes[0].publish({"n": n}, payload=b"%d" % n)
            await until(lambda: len(got) == 19, 10)
            assert sorted(got) == sorted(b"%d" % n for n in range(1, 20))
            drops = {reason for node in network.nodes.values() for reason in node.drops}
            assert not {reason for reason in drops if reason.startswith(("event_", "seal", "frame_"))}, drops

    run(story())


def test_nodes_with_one_secret_find_each_other(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with with_secret(config, "a") as one, with_secret(config, "b") as other:
            one.add_peer(other.address)  # one of both is enough
            await until(lambda: one.neighbors == [other.node] and other.neighbors == [one.node])
            inbox = Inbox()
            one.subscribe("", inbox)
            event = other.publish({"n": 1})
            await until(lambda: inbox.events == [event])

    run(story())


@pytest.mark.guarantee("strangers")
def test_open_and_keyed_nodes_stay_strangers_and_both_say_so(
    config: MakeConfig, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as open_node, LiveNode(OPERATOR.keyed(config(2))) as keyed:
            acquaint(open_node, keyed)
            await until(lambda: open_node.drops["link_keyed"] > 5 and keyed.drops["link_open"] > 5)
            assert open_node.neighbors == keyed.neighbors == []

    with caplog.at_level(logging.INFO, "carrycast.node"):
        run(story())
    said = [record.message for record in caplog.records]
    assert sum("this node is open" in text for text in said) == 1
    assert sum("a node with keys is in reach, and this one has none" in text for text in said) == 1
    assert sum("has no keys, and this one has" in text for text in said) == 1


@pytest.mark.guarantee("strangers")
def test_nodes_of_different_networks_stay_strangers(
    config: MakeConfig, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with (
            LiveNode(OPERATOR.keyed(config(1))) as one,
            LiveNode(Operator("another").keyed(config(2))) as other,
            with_secret(config, "c") as third,
            with_secret(config, "d", bytes(31) + b"x") as fourth,
        ):
            acquaint(one, other, third, fourth)
            for node in (one, other, third, fourth):
                await until(lambda node=node: node.drops["link_other_network"] > 5)  # type: ignore[misc]  # bound now
                assert node.neighbors == []

    with caplog.at_level(logging.WARNING, "carrycast.node"):
        run(story())
    assert any("belongs to another network" in record.message for record in caplog.records)


@pytest.mark.parametrize(
    ("stranger", "reason"),
    [
        ({"expires_s": 1.0}, "link_credential_expired"),
        ({"operator": "another"}, "link_credential_of_a_stranger"),
    ],
)
def test_who_has_no_good_certificate_is_refused(
    stranger: dict[str, object], reason: str, config: MakeConfig, run: Run
) -> None:
    """Its own node takes it for good, as that of an attacker may."""

    async def story() -> None:
        network = OPERATOR.keys(1)
        signer = Operator(str(stranger["operator"])) if "operator" in stranger else OPERATOR
        made = signer.keys(2, issued_s=0.0, expires_s=float(str(stranger.get("expires_s", "inf"))))
        keys = Forged(made.private, None, made.certificate, network.operator)
        bad = replace(config(2), keys=keys)
        async with LiveNode(replace(config(1), keys=network)) as good, LiveNode(bad) as other:
            acquaint(good, other)
            await until(lambda: good.drops[reason] > 0)
            await asyncio.sleep(0.2)
            assert good.neighbors == []

    run(story())


class Forged(Keys):
    """Keys of a node that believes in itself."""

    def make_membership(self) -> Membership:
        return Believer(SigningKey(self.private), self.certificate, self.operator, None)


class Believer(Certified):
    """A member that takes every certificate for good."""

    def _read_credential(self, credential: bytes) -> Member | Rejection:
        certificate = read_certificate(credential)
        assert certificate is not None
        return Member(certificate.node, certificate.key, credential)


@pytest.mark.guarantee("revoked-reads-nothing")
@pytest.mark.guarantee("list-arrives")
def test_a_revoked_node_is_a_stranger_everywhere_and_its_events_are_dropped(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        operator = Operator("of this story")
        async with LoopbackNetwork(operator.keyed(config(id, "epidemic")) for id in range(4)) as network:
            network.line()
            await network.wait_until_discovered(10)
            nodes = network.nodes
            inbox = Inbox()
            nodes[0].subscribe("n >= 0", inbox)
            first = nodes[3].publish({"n": 1})
            await until(lambda: inbox.events == [first])
            # Only the first is told, and node 3 is at the other end.
            assert isinstance(nodes[0].security, KeyedSecurityPolicy)
            assert nodes[0].security.membership.take_revocations(operator.revoked(3, *range(1000, 2700)))
            await until(lambda: 3 not in nodes[2].neighbors, 10)
            await until(lambda: nodes[1].neighbors == [0, 2] or nodes[1].neighbors == [2, 0], 10)
            await until(lambda: nodes[2].drops["link_credential_revoked"] > 0, 10)
            nodes[3].publish({"n": 2})
            third = nodes[2].publish({"n": 3})
            await until(lambda: third in inbox.events, 10)
            assert inbox.events == [first, third]

    run(story())


@pytest.mark.parametrize("protocol", ["epidemic", "spray_and_wait", "prophet"])
def test_who_carries_events_of_a_revoked_node_keeps_its_links(protocol: str, config: MakeConfig, run: Run) -> None:
    """They are refused for good: to send them again, and to give up who refuses them, would help nobody."""

    async def story() -> None:
        operator = Operator("of this story")
        carrier, bad, newcomer = (operator.keyed(config(id, protocol)) for id in (1, 2, 3))
        async with LiveNode(carrier) as first:
            inbox = Inbox()
            first.subscribe("n >= 0", inbox)
            async with LiveNode(bad) as second:
                acquaint(first, second)
                await until(lambda: first.neighbors == [2] and second.neighbors == [1], 10)
                carried = [second.publish({"n": n}) for n in range(5)]
                await until(lambda: sorted(inbox.events) == sorted(carried), 10)
            assert isinstance(first.security, KeyedSecurityPolicy)
            assert first.security.membership.take_revocations(operator.revoked(2))
            async with LiveNode(newcomer) as third:
                others = Inbox()
                third.subscribe("n >= 0", others)
                acquaint(first, third)
                await until(lambda: third.drops["event_of_a_revoked_node"] > 0, 10)
                honest = [first.publish({"n": n}) for n in range(5)]
                await until(lambda: sorted(others.events) == sorted(honest), 10)
                await asyncio.sleep(0.5)  # In which who does not acknowledge would have been given up.
                rows = first.trace.table().to_pylist()
                assert 3 not in {row["peer"] for row in rows if row["reason"] == "unacknowledged"}
                assert 3 in first.neighbors

    run(story())


def test_a_list_that_was_written_is_read_again_when_asked(
    config: MakeConfig, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on SIGHUP; one that is broken changes nothing but a line in the log."""

    async def story() -> None:
        operator, file = Operator("of this list"), tmp_path / "revoked.list"
        one = operator.keyed(config(1), list_file=file)
        async with LiveNode(one) as first, LiveNode(operator.keyed(config(2))) as second:
            acquaint(first, second)
            await until(lambda: first.neighbors == [2] and second.neighbors == [1], 10)
            for broken in ("nonsense", format_key(KeyKind.REVOCATIONS, b"x"), format_key(KeyKind.NETWORK, bytes(32))):
                file.write_text(broken)
                first.security.reload()
            assert first.neighbors == [2]
            write_key(file, KeyKind.REVOCATIONS, operator.revoked(2), replace=True)
            first.security.reload()
            await until(lambda: first.neighbors == [], 10)
            await until(lambda: first.drops["link_credential_revoked"] > 0, 10)

    run(story())
    assert sum("was not read again" in record.message for record in caplog.records) == 3


def test_a_folder_that_may_not_be_looked_into_changes_nothing_either(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden() -> bool:
        raise PermissionError(13, "Permission denied", "revoked.list")

    async def story() -> None:
        async with LiveNode(OPERATOR.keyed(config(1))) as node:
            assert isinstance(node.security, KeyedSecurityPolicy)
            monkeypatch.setattr(node.security.membership, "reload", forbidden)
            node.security.reload()

    run(story())
    assert "was not read again: [Errno 13] Permission denied" in caplog.text


@pytest.mark.guarantee("certified")
@pytest.mark.guarantee("signed")
def test_what_a_certificate_does_not_allow_is_refused_at_the_door(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        policy = {"publish": "road is not null", "subscribe": "road = 'A1'", "attributes": {"rank": "major", "n": 1}}
        async with LiveNode(OPERATOR.keyed(config(1), **policy)) as node:
            node.publish({"road": "A1"})
            with pytest.raises(UserError, match="may publish only what matches"):
                node.publish({"speed": 30})
            node.subscribe("road = 'A1' and speed > 30", Inbox(), attributes={"rank": "major"})
            with pytest.raises(UserError, match="may ask only for"):
                node.subscribe("speed > 30", Inbox())
            with pytest.raises(UserError, match="may ask only for"):
                node.request("speed > 30", 1.0, lambda event, hops: None, lambda complete: None)
            node.request("road = 'A1'", 1.0, lambda event, hops: None, lambda complete: None)
            for claimed in ({"rank": "general"}, {"unit": 7}, {"n": True}):
                with pytest.raises(UserError, match="not in this node's certificate"):
                    node.subscribe("road = 'A1'", Inbox(), attributes=claimed)

    run(story())


def test_the_longest_event_fits_with_its_signature_and_a_longer_one_is_refused(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(OPERATOR.keyed(config(id, "epidemic")) for id in range(2)) as network:
            network.line()
            await network.wait_until_discovered(10)
            inbox = Inbox()
            network.nodes[1].subscribe("", inbox)
            room = MAX_SIGNED_BYTES - len(OPERATOR.keys(0).certificate) - 200
            event = network.nodes[0].publish({"n": 1}, payload=bytes(room))
            await until(lambda: inbox.events == [event], 10)
            with pytest.raises(UserError, match="with its signature"):
                network.nodes[0].publish({"n": 1}, payload=bytes(room + 500))

    run(story())


def test_a_node_refuses_keys_that_are_not_its_own(config: MakeConfig, tmp_path: Path) -> None:
    mine, other = OPERATOR.keys(1), OPERATOR.keys(2)
    with pytest.raises(UserError, match="for another key"):
        LiveNode(replace(config(1), keys=replace(mine, certificate=other.certificate)))
    operator, file = Operator("of this list"), tmp_path / "revoked.list"
    out = operator.keyed(config(1), list_file=file)
    write_key(file, KeyKind.REVOCATIONS, operator.revoked(1))
    with pytest.raises(UserError, match="revoked"):
        LiveNode(out)
    old = msgspec.msgpack.encode([1, 1, bytes(32), "car", 0.0, 1e12, None, None, {}, bytes(64)])
    with pytest.raises(UserError, match="older version of carrycast; have the operator certify"):
        LiveNode(replace(config(1), keys=replace(mine, certificate=old)))
