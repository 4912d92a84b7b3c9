"""False claims of a malicious member: in messages that a protocol assembles, and in requests for stored events."""

import asyncio
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec
import pytest

from carrycast.core.model import Event, EventId, NodeId, Request, RequestId, Scalar, Subscription, SubscriptionId
from carrycast.core.protocol import StackPlan
from carrycast.core.protocol.registry import find_protocol, find_router
from carrycast.core.settings import parse_settings
from carrycast.core.wire import DecodeError, Layer, Message, Parcel, Traffic
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.config import NodeConfig
from carrycast.node.node import LiveNode
from carrycast.node.security.verification import MessageVerifier
from carrycast.protocols.overlay.messages import (
    Attach,
    DirectoryEntry,
    DirectoryReply,
    DirectoryUpdate,
    HomeVersion,
    Packet,
    Publish,
    Subscribe,
)
from carrycast.protocols.overlay.protocol import OpportunisticOverlay
from carrycast.routers.aodv.messages import Packet as Routed
from carrycast.services.retrieval.messages import RetrievalId, RetrievalRequest
from tests.live.conftest import BEACONS, MakeConfig, Run
from tests.live.insider import Insider, insider
from tests.live.keyed import Operator, sign_event
from tests.live.test_gone_bad import until_dropped
from tests.live.test_overlay import AODV, SETTINGS, Watched

OPERATOR = Operator()
BROKER, BAD = 2, 666
BROKERS = (1, BROKER)
VERSION = HomeVersion(1, 1)
MAJOR = "rank = 'major'"


def overlay_plan(protocol: type[OpportunisticOverlay] = OpportunisticOverlay) -> StackPlan:
    router = find_router("aodv")
    settings = parse_settings(SETTINGS, OpportunisticOverlay.settings_type, "test")
    return StackPlan(protocol, settings, router, parse_settings(AODV, router.settings_type, "test"), BEACONS)


def broker(config: NodeConfig) -> NodeConfig:
    roles = ("broker",) if config.node == BROKER else ()
    return replace(config, plan=overlay_plan(Watched), roles=roles, directory={"broker": (BROKER,)})


def subscription(number: int, node: NodeId = BAD, filter: str = "road = 'A1'", **attributes: Scalar) -> Subscription:
    return Subscription(SubscriptionId(node, number), filter, attributes=attributes)


class Client:
    """A member that speaks to a broker as its client, in pieces as short as it likes."""

    def __init__(self, forged: Insider, piece_bytes: int = 1200) -> None:
        self._forged = forged
        self._bytes = piece_bytes
        self._numbers = count()

    def tell(self, message: Message) -> None:
        body = msgspec.msgpack.encode(message)
        pieces = [body[at : at + self._bytes] for at in range(0, len(body), self._bytes)]
        for index, piece in enumerate(pieces):
            packet = Packet(
                Parcel(piece, Traffic.CONTROL),
                session=1,
                peer=None,
                number=next(self._numbers),
                first=0,
                index=index,
                count=len(pieces),
            )
            parcel = Parcel(self._forged.codec().encode(packet), Traffic.CONTROL)
            self._forged.tell(Routed(parcel, origin=BAD, destination=BROKER, hops=1), Layer.ROUTING)


@pytest.mark.parametrize("piece_bytes", [40, 1200], ids=["in pieces", "whole"])
def test_a_home_broker_serves_no_claims_that_are_not_certified(piece_bytes: int, config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        victim = OPERATOR.keyed(broker(config(BROKER)))
        bad = OPERATOR.keyed(broker(config(BAD)), subscribe="road = 'A1'", attributes={"rank": "private"})
        async with LiveNode(victim) as second, insider(bad, second) as forged:
            home = Watched.all[BROKER].broker
            assert home is not None
            client, certified = Client(forged, piece_bytes), forged.verifier.attach_certificate
            client.tell(Attach(VERSION))
            for number, (claim, reason) in enumerate(
                [
                    (subscription(1, rank="general"), "subscription_uncertified"),
                    (certified(subscription(2, rank="general")), "subscription_not_allowed"),
                    (certified(subscription(3, filter="true")), "subscription_not_allowed"),
                ]
            ):
                client.tell(Subscribe(VERSION, claim))
                await until_dropped(second, reason, max(1, number))
            client.tell(Subscribe(VERSION, certified(subscription(4, rank="private"))))
            await until(lambda: SubscriptionId(BAD, 4) in home.modulators, 10)
            assert [one.subscription.id.sequence for one in home.modulators] == [4]

    run(story())


def test_a_home_broker_takes_no_forged_event_to_its_modulators(config: MakeConfig, run: Run) -> None:
    """One that is to be processed has no outcome if it is first looked at when it is."""

    async def story() -> None:
        victim, bad = (OPERATOR.keyed(broker(config(node))) for node in (BROKER, BAD))
        async with LiveNode(victim) as second, insider(bad, second) as forged:
            client = Client(forged)
            client.tell(Attach(VERSION))
            client.tell(Publish(Event(EventId(1, 1), {"n": 1}), 1, 60.0, version=VERSION, number=0, first=0))
            await until_dropped(second, "event_unsigned")
            await asyncio.sleep(0)
            assert "handler_raised" not in second.drops

    run(story())


def interest(verifier: MessageVerifier | None, node: NodeId, **attributes: str) -> DirectoryEntry:
    made = subscription(0, node, **attributes)
    return DirectoryEntry(made if verifier is None else verifier.attach_certificate(made), VERSION, BROKER, BROKER)


def test_rows_of_a_list_count_one_by_one() -> None:
    """A node whose certificate has expired may still be in the lists of others."""
    verifier = OPERATOR.verifier(BROKER)
    dropped: list[str] = []
    verifier.on_drop = dropped.append
    codec = verifier.add_verification(overlay_plan()).codecs[Layer.DISSEMINATION]
    kinds: tuple[type[Message], ...] = (DirectoryUpdate, DirectoryReply)
    read = codec.decoder(kinds)
    good = interest(OPERATOR.verifier(1), 1)
    bare, claims = interest(None, 3), interest(OPERATOR.verifier(4), 4, rank="general")
    for message in (
        DirectoryUpdate((bare, good, claims)),
        DirectoryReply((bare, good, claims), more=False, complete=True),
    ):
        counting = msgspec.structs.replace(message, entries=(good,))
        assert read(msgspec.msgpack.encode(message)) == counting
        assert codec.decode(codec.encode(message)) == counting
    assert dropped == ["subscription_uncertified", "subscription_not_allowed"] * 4


@pytest.mark.parametrize("protocol", ["asp", "overlay"])
def test_an_event_that_came_in_pieces_was_good_when_it_set_out(protocol: str) -> None:
    """An assembled message is acknowledged already: an event of a revoked node must not block later messages."""
    kind = find_protocol(protocol)
    verifier = OPERATOR.verifier(BROKER)
    plan = verifier.add_verification(StackPlan(kind, kind.settings_type(), beacons=BEACONS))
    read = plan.codecs[Layer.DISSEMINATION].decoder((Event,))
    event = Event(EventId(1, 1), {"n": 1})
    good = sign_event(OPERATOR.verifier(1).signatures, event)
    assert read(msgspec.msgpack.encode(good)) == good
    for forged, reason in (
        (event, "event_unsigned"),
        (msgspec.structs.replace(good, attributes={"n": 2}), "event_forged"),
        (sign_event(Operator("another").verifier(1).signatures, event), "event_of_a_stranger"),
    ):
        with pytest.raises(DecodeError, match=reason):
            read(msgspec.msgpack.encode(forged))
    operator = Operator()
    assert verifier.membership.take_revocations(operator.revoked(1))
    assert read(msgspec.msgpack.encode(good)) == good
    assert verifier.signatures.verify(good) == "event_of_a_revoked_node"


def tree(config: MakeConfig, node: NodeId, store: Path, no_route: str = "wait") -> NodeConfig:
    plain = config(node, "tree", store=store / f"{node}", group_s=0.2, refresh_s=0.5, cache=100, no_route=no_route)
    return replace(plain, roles=("broker",) if node in BROKERS else (), directory={"broker": BROKERS})


def answered(node: LiveNode) -> list[str]:
    """Return the events with which a node has answered."""
    return [row["event"] for row in node.trace.table().to_pylist() if row["kind"] == "respond"]


def test_a_repository_answers_nobody_who_claims_more_than_is_certified(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        # The insider sends no beacons: a request of somebody who is no neighbor would wait for the way back.
        victim = OPERATOR.keyed(tree(config, BROKER, tmp_path, no_route="drop"))
        bad = OPERATOR.keyed(tree(config, BAD, tmp_path), subscribe="topic = 't'", attributes={"rank": "private"})
        async with LiveNode(victim) as second, insider(bad, second) as forged:
            second.advertise("true", stored=True)
            second.publish({"topic": "t"}, lease_s=60.0, access=MAJOR)
            plain = second.publish({"topic": "t"}, lease_s=60.0)
            numbers = count()

            def ask(attributes: dict[str, Scalar], filter: str = "topic = 't'", *behind: NodeId) -> None:
                forged.tell(RetrievalRequest(RetrievalId(1, next(numbers)), filter, attributes, (BAD, *behind), 60.0))

            def claimed(
                verifier: MessageVerifier, filter: str = "topic = 't'", **attributes: Scalar
            ) -> dict[str, Scalar]:
                return verifier.attach_certificate(Request(RequestId(BAD, 0), filter, attributes=attributes)).attributes

            ask({"rank": "major"})
            await until_dropped(second, "request_uncertified")
            mine, major = forged.verifier, OPERATOR.verifier(7, attributes={"rank": "major"})
            # The certificate of another travels with its events, and with its subscriptions.
            known = major.attach_certificate(subscription(0, 7, rank="major")).attributes
            lies: tuple[dict[str, Scalar], ...] = (
                {},
                {**known, "$signature": claimed(mine)["$signature"]},
                {**claimed(mine), "$signature": 7},
                {**claimed(mine), "$signature": "no base64"},
            )
            for attributes in lies:
                ask(attributes)
            ask(known, "topic = 't'", 7)
            ask({**known, "$signature": claimed(mine)["$signature"]}, "topic = 't'", 7)
            await until_dropped(second, "request_uncertified", 7)
            ask(claimed(mine, rank="major"))
            ask(claimed(mine), "true")
            await until_dropped(second, "request_not_allowed", 2)
            # What it signed is not what it asks with.
            ask({**claimed(mine), "rank": "private"})
            await until_dropped(second, "request_uncertified", 8)
            assert answered(second) == []
            ask(claimed(mine, rank="private"))
            await until(lambda: answered(second) == [str(plain)], 10)

    run(story())


def test_stored_events_come_to_whom_certificates_allow_them(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    """Over a broker that has a part of them itself, so that it asks for the rest in a request of its own words."""

    async def story() -> None:
        configs = [
            OPERATOR.keyed(tree(config, node, tmp_path), subscribe=subscribe, attributes=attributes)
            for node, subscribe, attributes in (
                (1, None, None),
                (BROKER, None, None),
                (3, "topic = 't'", {"rank": "major"}),
                (4, "topic = 't'", {"rank": "private"}),
            )
        ]
        async with LoopbackNetwork(configs) as network:
            for a, b in ((1, BROKER), (BROKER, 3), (BROKER, 4)):
                network.link(a, b)
            await network.wait_until_discovered()
            nodes = network.nodes
            nodes[1].advertise("n < 5", stored=True)
            nodes[BROKER].advertise("n >= 5", stored=True)
            ids = [
                nodes[publisher].publish({"topic": "t", "n": n}, lease_s=60.0, access=access)
                for publisher, n in ((1, 1), (BROKER, 7))
                for access in (MAJOR, None)
            ]
            major, private, asked = Inbox(), Inbox(), list[EventId]()
            await asyncio.sleep(1.0)
            nodes[3].subscribe("topic = 't'", major, attributes={"rank": "major"}, history=True)
            nodes[4].subscribe("topic = 't'", private, attributes={"rank": "private"}, history=True)
            closed: list[bool] = []
            nodes[3].request("topic = 't'", 10.0, lambda event, hops: asked.append(event.id), closed.append)
            await until(lambda: sorted(major.events) == sorted(ids) and bool(closed), 20)
            open_to_all = sorted(id for at, id in enumerate(ids) if at % 2)
            await until(lambda: sorted(private.events) == open_to_all, 10)
            assert (sorted(asked), closed) == (open_to_all, [True])
            dropped = {reason for node in nodes.values() for reason in node.drops}
            assert not {reason for reason in dropped if reason.startswith(("event_", "subscription_", "request_"))}

    run(story())
