"""The end of a node's own certificate: it warns before, refuses to publish after, and takes a new one while it runs;
and how long what was signed under it is accepted."""

import asyncio
import contextlib
import json
import logging
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from carrycast.api import connect, connect_async
from carrycast.core.model import Event, EventId
from carrycast.errors import NotAuthorizedError, UserError, WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.config import NodeConfig, load_config
from carrycast.node.node import LiveNode
from carrycast.node.security import certificate_monitor, commands
from carrycast.node.security.certificate import DAY_S, GRACE_S
from carrycast.node.security.event_signatures import EventFlaw
from carrycast.node.security.key_files import KeyKind
from carrycast.node.security.membership import CLOCK_SLACK_S, Certified
from carrycast.node.security_policy import KeyedSecurityPolicy
from tests.live.air import Air, Speaker, carry_until, meet
from tests.live.conftest import MakeConfig, Run
from tests.live.keyed import Operator, sign_event
from tests.live.test_topic_holder import holder_config

OPERATOR = Operator()


class Clock:
    """The clock of the day, which a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = time.time
        self.ahead_s = 0.0
        monkeypatch.setattr(time, "time", self)

    def __call__(self) -> float:
        return self._real() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def asked(node: LiveNode, path: str) -> tuple[int, str]:
    """Return the response of the monitoring server."""

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{node.metrics.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(get)


def ending(config: NodeConfig, in_s: float, operator: Operator = OPERATOR, **more: object) -> NodeConfig:
    return operator.keyed(config, expires_s=time.time() + in_s, **more)


@pytest.mark.guarantee("warns")
def test_a_node_warns_before_the_end_in_log_health_and_metrics(
    config: MakeConfig, run: Run, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_monitor, "CHECK_S", 0.05)

    def said(text: str) -> int:
        return sum(text in record.message for record in caplog.records)

    async def story() -> None:
        made = ending(replace(config(1), metrics=("127.0.0.1", 0)), 40 * DAY_S)
        assert made.keys is not None
        made = replace(made, keys=replace(made.keys, warn_days=20.0))
        async with LiveNode(made) as node:
            assert await asked(node, "/health") == (200, "ok\n")
            assert said("certificate") == 0
            clock.ahead_s = 21 * DAY_S
            await until(lambda: said("certificate ends on") == 1, 30)
            code, text = await asked(node, "/health")
            assert code == 200
            assert text.startswith("ok\nwarning: this node's certificate ends on")
            ends_s = node.status().certificate_ends_s
            assert ends_s is not None
            metrics = (await asked(node, "/metrics"))[1]
            assert f"carrycast_certificate_end_timestamp_seconds {ends_s!r}" in metrics
            await asyncio.sleep(0.3)
            assert said("certificate ends on") == 1, "once a day"
            clock.ahead_s = 41 * DAY_S
            await until(lambda: said("certificate ended on") == 1, 30)
            code, text = await asked(node, "/health")
            assert code == 503
            assert "SIGHUP" in text

    with caplog.at_level(logging.INFO, "carrycast.node"):
        run(story())


@pytest.mark.guarantee("publishing-refused")
def test_publishing_is_refused_after_the_end_with_a_reason(
    config: MakeConfig, run: Run, clock: Clock, tmp_path: Path
) -> None:
    """In Python, at the control channel, by both clients; an event before the end is accepted."""

    def client(address: str) -> None:
        with connect(address) as one, pytest.raises(UserError, match="certificate ended on"):
            one.publish({"n": 1})

    async def story() -> None:
        socket = tmp_path / "1.sock"
        async with LiveNode(ending(config(1, control=socket), 100)) as node:
            node.publish({"n": 1})
            clock.ahead_s = 101
            with pytest.raises(NotAuthorizedError, match=r"certificate ended on .* have the operator certify it again"):
                node.publish({"n": 1})
            await asyncio.to_thread(client, str(socket))
            async with connect_async(str(socket)) as one:
                with pytest.raises(UserError, match="certificate ended on"):
                    await one.publish({"n": 1})
            reader, writer = await asyncio.open_unix_connection(str(socket))
            writer.write(json.dumps({"op": "publish", "id": 7, "attributes": {"n": 1}}).encode() + b"\n")
            answer = json.loads(await reader.readline())
            assert (answer["answer"], answer["id"]) == ("refused", 7)
            assert "certificate ended on" in answer["message"]
            writer.close()

    run(story())


@pytest.mark.guarantee("starts-without")
def test_a_node_starts_though_its_certificate_is_not_valid_now(
    config: MakeConfig, run: Run, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A device without a clock of its own starts in 1970, and what is stored at a node must not be locked away."""

    async def story() -> None:
        for issued_s, expires_s, said in (
            (0.0, time.time() - 1, "certificate ended on"),
            (time.time() + 10 * DAY_S, time.time() + 20 * DAY_S, "set the clock"),
        ):
            clock.ahead_s = 0.0
            async with LiveNode(OPERATOR.keyed(config(1), issued_s=issued_s, expires_s=expires_s)) as node:
                assert said in caplog.text
                inbox = Inbox()
                node.subscribe("n = 1", inbox)
                with pytest.raises(NotAuthorizedError, match=said):
                    node.publish({"n": 1})
                if said == "set the clock":
                    clock.ahead_s = 11 * DAY_S
                    event = node.publish({"n": 1})
                    await until(lambda inbox=inbox, event=event: inbox.events == [event])  # type: ignore[misc]

    run(story())


def files(folder: Path, days: float) -> NodeConfig:
    """A node with files, as a user has it."""
    for name, kind in (("car.key", KeyKind.IDENTITY), ("operator.key", KeyKind.OPERATOR)):
        if not (folder / name).exists():
            commands.make_key_pair(folder / name, kind)
    certify(folder, days)
    (folder / "node.toml").write_text(
        'name = "car"\n[listen]\nhost = "127.0.0.1"\nport = 0\n[protocol]\nname = "flooding"\n[discovery]\n'
        'period_s = 0.1\n[keys]\nidentity = "car.key"\ncertificate = "car.cert"\noperator = "operator.key.pub"\n'
    )
    return load_config(folder / "node.toml")


def certify(folder: Path, days: float, key: str = "car.key", name: str = "car") -> None:
    commands.certify(folder / f"{key}.pub", folder / "operator.key", folder / "car.cert", name, days=days)


@pytest.mark.guarantee("reload")
def test_a_certificate_is_read_again_while_the_node_runs(
    tmp_path: Path, run: Run, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """And a new key, if the certificate is for it; not one of another node or operator, nor one that has ended."""

    async def story() -> None:
        async with LiveNode(files(tmp_path, 1)) as node:
            clock.ahead_s = 2 * DAY_S
            with pytest.raises(UserError, match="ended on"):
                node.publish({"n": 1})
            certify(tmp_path, 10)
            node.security.reload()
            node.publish({"n": 1})
            ends_s = node.status().certificate_ends_s
            commands.make_key_pair(tmp_path / "other.key", KeyKind.IDENTITY)
            kept = (tmp_path / "car.cert").read_bytes()
            certify(tmp_path, 20, "other.key")
            node.security.reload()
            assert "for another key" in caplog.text
            (tmp_path / "car.key").write_bytes((tmp_path / "other.key").read_bytes())
            node.security.reload()
            assert node.status().certificate_ends_s != ends_s
            node.publish({"n": 1})
            ends_s = node.status().certificate_ends_s
            certify(tmp_path, 1e-6, "other.key")
            clock.ahead_s += 60
            node.security.reload()
            assert "not valid at this time" in caplog.text
            assert node.status().certificate_ends_s == ends_s
            certify(tmp_path, 20, "other.key", "van")
            node.security.reload()
            assert "restart the node" in caplog.text
            (tmp_path / "car.cert").write_text("nonsense")
            node.security.reload()
            assert "no key file" in caplog.text
            (tmp_path / "car.cert").write_bytes(kept)
            clock.ahead_s = 2 * DAY_S
            node.security.reload()
            assert node.status().certificate_ends_s == ends_s
            node.publish({"n": 1})

    run(story())


@pytest.mark.guarantee("reload")
def test_neighbors_know_a_new_certificate_before_the_old_one_ends(run: Run, clock: Clock) -> None:
    async def story() -> None:
        air, operator = Air(), Operator("of renewals")
        first, second = Speaker(air, 1, operator), Speaker(air, 2, operator, expires_s=time.time() + 100)
        meet(air, first, second)
        assert isinstance(second.membership, Certified)
        for speaker in (first, second):
            speaker.transport._handshakes._initiated_s.clear()
        second.membership.renew(second.membership.identity, operator.keys(2, expires_s=time.time() + 9000).certificate)
        await carry_until(
            air, lambda: [one.member.until_s > time.time() + 5000 for one in first.transport.sessions] == [True]
        )
        clock.ahead_s = 200
        first.dropped.clear()
        second.say(b"word", first.ear.address)
        air.carry()
        assert first.heard[-1] == (2, b"word")
        assert first.dropped == []

    run(story())


@pytest.mark.guarantee("reload")
def test_subscriptions_that_stand_travel_with_the_new_certificate(config: MakeConfig, run: Run) -> None:
    """Those that went out with the one before would end with it."""

    async def story() -> None:
        operator = Operator("of renewals")
        one, two, three, four = (holder_config(config, node, "broker_aodv") for node in (1, 2, 3, 4))
        end_s = time.time() + 3
        others = [operator.keyed(other) for other in (one, three, four)]
        async with LoopbackNetwork([*others, operator.keyed(two, expires_s=end_s)]) as network:
            node, inbox = network.nodes[2], Inbox()
            node.subscribe("topic = 'jam'", inbox)
            assert isinstance(node.security, KeyedSecurityPolicy)
            membership = node.security.membership
            assert isinstance(membership, Certified)
            membership.renew(membership.identity, operator.keys(2, expires_s=time.time() + 9000).certificate)
            await until(lambda: time.time() > end_s, 20)
            network.line()
            await network.wait_until_discovered(20)
            for _ in range(40):
                network.nodes[1].publish({"topic": "jam"}, b"p", 60.0)
                with contextlib.suppress(WorkError):
                    await until(lambda: bool(inbox.events), 0.5)
                    break
            assert inbox.events

    run(story())


# How long an event is accepted.

HOUR_S = 3600.0


def event(time_s: float, lease_s: float, number: int = 1) -> Event:
    return Event(EventId(2, number), {"n": 1}, b"payload", time_s, lease_s)


@pytest.mark.guarantee("grace")
@pytest.mark.parametrize(
    ("lease_s", "signed_before_end_s", "asked_after_end_s", "accepted"),
    [
        (1e9, HOUR_S, 1.0, True),
        (1e9, HOUR_S, GRACE_S - 1, True),
        (1e9, HOUR_S, GRACE_S + 1, False),
        (60.0, HOUR_S, CLOCK_SLACK_S - HOUR_S, True),
        (60.0, HOUR_S, CLOCK_SLACK_S + 61, False),
        (float("inf"), 1.0, GRACE_S - 1, True),
        (float("inf"), 1.0, GRACE_S + 1, False),
        (1e9, -1.0, -2.0, True),
        (1e9, -1.0, 1.0, False),
    ],
)
def test_what_was_signed_before_the_end_is_accepted_for_its_lease_and_the_grace_at_most(
    lease_s: float, signed_before_end_s: float, asked_after_end_s: float, accepted: bool, clock: Clock
) -> None:
    """Also where it was accepted before: what is remembered ends, too."""
    end_s = time.time() + 10 * HOUR_S
    made = OPERATOR.verifier(2, expires_s=end_s).signatures
    sent = sign_event(made, event(end_s - signed_before_end_s, lease_s))
    new, knowing = (OPERATOR.verifier(1).signatures for _ in range(2))
    copied = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Event)
    assert knowing.verify(copied) is None
    clock.ahead_s = end_s + asked_after_end_s - clock() + clock.ahead_s
    expected = None if accepted else EventFlaw.EXPIRED
    assert new.verify(sent) is expected
    assert knowing.verify(copied) is expected, "the same object"
    assert knowing.verify(sent) is expected, "the same event"


@pytest.mark.guarantee("grace")
def test_a_thief_of_an_ended_certificate_gains_no_more_than_the_grace(clock: Clock) -> None:
    """It claims whatever time it likes, and an endless lease."""
    end_s = time.time() + 100
    thief = OPERATOR.verifier(2, expires_s=end_s, grace_s=HOUR_S).signatures
    judge = OPERATOR.verifier(1).signatures
    claimed = [sign_event(thief, event(at_s, float("inf"), n)) for n, at_s in enumerate((0.0, end_s - 1, end_s + 1e6))]
    clock.ahead_s = 100 + HOUR_S - 10
    assert [judge.verify(one) for one in claimed] == [None, None, EventFlaw.EXPIRED]
    clock.ahead_s = 100 + HOUR_S + 10
    assert {judge.verify(one) for one in claimed} == {EventFlaw.EXPIRED}


@pytest.mark.guarantee("revocation-overrides")
def test_revocation_overrides_any_time_that_is_claimed(clock: Clock) -> None:
    operator = Operator("of claims")
    thief = operator.verifier(2).signatures
    sent = [sign_event(thief, event(at_s, float("inf"), n)) for n, at_s in enumerate((0.0, time.time() - 1e6, 1e10))]
    judge = operator.verifier(1)
    assert [judge.signatures.verify(one) for one in sent] == [None] * 3
    assert judge.membership.take_revocations(operator.revoked(2))
    assert {judge.signatures.verify(one) for one in sent} == {EventFlaw.REVOKED}
    clock.ahead_s = -1e6
    assert {judge.signatures.verify(one) for one in sent} == {EventFlaw.REVOKED}


@pytest.mark.guarantee("revocation-outlives-grace")
def test_a_revocation_outlives_the_grace(tmp_path: Path) -> None:
    commands.make_key_pair(tmp_path / "car.key", KeyKind.IDENTITY)
    commands.make_key_pair(tmp_path / "operator.key", KeyKind.OPERATOR)
    made = commands.certify(
        tmp_path / "car.key.pub", tmp_path / "operator.key", tmp_path / "car.cert", "car", days=2, grace_days=30
    )
    listed = commands.revoke(["car"], tmp_path / "operator.key", tmp_path / "out.list")
    [entry] = listed.entries.values()
    assert entry.until_s >= made.expires_s + made.grace_s + CLOCK_SLACK_S


def test_a_grace_that_is_none_is_refused(tmp_path: Path) -> None:
    for days in (-1.0, float("nan"), 40_000.0):
        with pytest.raises(UserError, match="--grace"):
            commands.certify(tmp_path / "a", tmp_path / "b", tmp_path / "c", "car", grace_days=days)
