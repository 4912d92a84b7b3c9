"""Keys with routers: parcels are verified, too, and certified attributes decide which nodes get an event."""

import contextlib

import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.wire import DecodeError, Layer, Parcel, Traffic
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.protocols.topic_holder.messages import Publication
from carrycast.routers.aodv.messages import Packet
from tests.live.conftest import MakeConfig, Run
from tests.live.keyed import Operator, sign_event
from tests.live.test_topic_holder import holder_config

OPERATOR = Operator()


@pytest.mark.parametrize("scheme", ["broker_aodv", "rendezvous_gpsr"])
def test_certified_attributes_decide_who_gets_an_event(scheme: str, config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        attributes = {3: {"rank": "major"}, 4: {"rank": "private"}}
        configs = [
            OPERATOR.keyed(holder_config(config, node, scheme), attributes=attributes.get(node))
            for node in (1, 2, 3, 4)
        ]
        async with LoopbackNetwork(configs) as network:
            network.line()
            await network.wait_until_discovered(10)
            major, private = Inbox(), Inbox()
            network.nodes[3].subscribe("topic = 'jam'", major, attributes={"rank": "major"})
            network.nodes[4].subscribe("topic = 'jam'", private, attributes={"rank": "private"})
            first = Inbox()
            network.nodes[2].subscribe("topic = 'jam'", first)
            wanted: list[EventId] = []
            for _ in range(40):
                # Until the holder knows all three.
                wanted.append(network.nodes[1].publish({"topic": "jam"}, b"p", 60.0, access="rank = 'major'"))
                with contextlib.suppress(WorkError):
                    await until(lambda: bool(major.events), 0.5)
                    break
            assert set(major.events) <= set(wanted)
            assert major.events
            assert private.events == first.events == []
            dropped = {reason for node in network.nodes.values() for reason in node.drops}
            assert not {reason for reason in dropped if reason.startswith(("event_", "subscription_"))}

    run(story())


def test_an_unsigned_event_in_a_parcel_goes_no_further(config: MakeConfig) -> None:
    made = OPERATOR.keyed(holder_config(config, 2, "broker_aodv"))
    assert made.keys is not None
    plan = made.keys.make_verifier().add_verification(made.plan)
    signer = OPERATOR.verifier(1)

    def carried(event: Event) -> bytes:
        inner = made.plan.codecs[Layer.DISSEMINATION].encode(Publication(event, 1, 60.0))
        return made.plan.codecs[Layer.ROUTING].encode(
            Packet(parcel=Parcel(inner, Traffic.CONTROL), origin=1, destination=3, hops=1)
        )

    event = Event(EventId(1, 1), {"topic": "jam"})
    plan.codecs[Layer.ROUTING].decode(carried(sign_event(signer.signatures, event)))
    with pytest.raises(DecodeError, match="event_unsigned"):
        plan.codecs[Layer.ROUTING].decode(carried(event))
