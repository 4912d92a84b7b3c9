"""Keys, certificates and signatures by themselves, and the commands that make them."""

import time
from pathlib import Path

import msgspec
import pytest

from carrycast.cli import main
from carrycast.core.model import AccessPolicy, Event, EventId, Position, Scalar, Subscription, SubscriptionId
from carrycast.core.protocol.host import Capability
from carrycast.core.stacks import make_stack_plan
from carrycast.core.wire import Codec, DecodeError, Layer, Message
from carrycast.errors import UserError, WorkError
from carrycast.node.config import load_config
from carrycast.node.link.replay_window import ReplayCheck, ReplayWindow
from carrycast.node.security import commands, primitives
from carrycast.node.security.certificate import (
    FORMAT,
    MAX_CERTIFICATE_BYTES,
    Certificate,
    encode_card,
    is_issued_by,
    issue_certificate,
    read_card,
    read_certificate,
)
from carrycast.node.security.event_signatures import EventFlaw, strip_signature
from carrycast.node.security.identity import derive_node_id
from carrycast.node.security.key_files import KeyKind, read_key, write_key
from carrycast.node.security.membership import Certified, Rejection
from carrycast.node.security.primitives import Cipher, DhKeyPair, SigningKey, is_signed_by
from carrycast.node.security.revocations import RevocationList, RevocationTimes, read_revocation_list, revoke_nodes
from carrycast.node.security.verification import CERTIFICATE
from tests.live.keyed import Operator, private_of, sign_event

OPERATOR = Operator()
EVENT = Event(
    EventId(1, 5), {"n": 1, "x": 0.5, "s": "ü"}, b"payload", 17.25, 60.0, AccessPolicy("rank = 1"), (EventId(2, 3),)
)
CONFIG = """
name = "car-1"
[listen]
port = 0
[protocol]
name = "flooding"
[keys]
identity = "car-1.key"
"""


def test_the_commands_make_all_that_a_node_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    assert main(["keys", "new", f"{folder}/car-1.key"]) == 0
    assert main(["keys", "operator", f"{folder}/operator.key"]) == 0
    certify = ["keys", "certify", f"{folder}/car-1.key.pub", "--operator", f"{folder}/operator.key", "--name", "car-1"]
    policy = ["--publish", "road is not null", "--attribute", "rank=major", "--days", "30"]
    assert main([*certify, "--out", f"{folder}/car-1.cert", *policy]) == 0
    file = tmp_path / "car-1.toml"
    file.write_text(CONFIG + 'certificate = "car-1.cert"\noperator = "operator.key.pub"\nrevocations = "out.list"\n')
    config = load_config(file)
    assert config.node == derive_node_id(b"car-1"), "the id of a certified node is that of its name, as without keys"
    assert config.keys is not None
    mine = config.keys.make_membership().mine
    assert dict(mine.attributes) == {"rank": "major"}
    capsys.readouterr()
    assert main(["keys", "show", f"{folder}/car-1.cert"]) == 0
    assert "publish road is not null" in capsys.readouterr().out
    revoke = ["keys", "revoke", f"{folder}/car-1.cert", "7", "car-9", "--operator", f"{folder}/operator.key"]
    assert main([*revoke, "--list", f"{folder}/out.list"]) == 0
    with pytest.raises(UserError, match="is rejected: credential revoked"):
        load_config(file)
    assert main(["keys", "show", f"{folder}/out.list", "--json"]) == 0
    # Who is certified anew is in again.
    assert main([*certify, "--out", f"{folder}/car-1.cert"]) == 0
    load_config(file)


@pytest.mark.parametrize("file", ["car-1.key", "operator.key", "car-1.key.pub", "car-1.toml"])
def test_a_certificate_takes_the_place_of_an_older_one_and_of_nothing_else(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "new", f"{tmp_path}/car-1.key"]) == main(["keys", "operator", f"{tmp_path}/operator.key"]) == 0
    (tmp_path / "car-1.toml").write_text("name = 'car-1'\n")
    certify = [
        "keys",
        "certify",
        f"{tmp_path}/car-1.key.pub",
        "--operator",
        f"{tmp_path}/operator.key",
        "--name",
        "car-1",
    ]
    before = (tmp_path / file).read_bytes()
    assert main([*certify, "--out", f"{tmp_path}/{file}"]) == 2
    assert "expected" in capsys.readouterr().err
    assert (tmp_path / file).read_bytes() == before
    assert (
        main([*certify, "--out", f"{tmp_path}/car-1.cert"]) == main([*certify, "--out", f"{tmp_path}/car-1.cert"]) == 0
    )


def test_a_network_with_a_secret(tmp_path: Path) -> None:
    commands.make_key_pair(tmp_path / "car-1.key", KeyKind.IDENTITY)
    commands.make_network_secret(tmp_path / "network.key")
    file = tmp_path / "car-1.toml"
    file.write_text(CONFIG + 'network = "network.key"\n')
    config = load_config(file)
    assert config.node == commands.describe_key_file(tmp_path / "car-1.key.pub")["node"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CONFIG, "give either network .* or certificate and operator"),
        (CONFIG + 'network = "n.key"\ncertificate = "c"\n', "give either network"),
        (CONFIG + 'network = "n.key"\noperator = "o"\n', "keys.operator: belongs to a network with certificates"),
        (CONFIG + 'certificate = "c"\n', "keys.operator: name the file"),
        (CONFIG + 'network = "car-1.key"\n', "holds a key of kind identity; expected network"),
        (CONFIG + 'network = "none.key"\n', "there is no such file"),
        ('key_file = "x"\n' + CONFIG + 'network = "n.key"\n', "key_file: is for nodes without"),
        (CONFIG + 'network = "n.key"\ntogether = 4\n', "keys.together: is now called signature_batch"),
    ],
)
def test_a_wrong_table_of_keys_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    commands.make_key_pair(tmp_path / "car-1.key", KeyKind.IDENTITY)
    commands.make_network_secret(tmp_path / "n.key")
    (tmp_path / "car-1.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_config(tmp_path / "car-1.toml")


def test_a_name_has_the_same_id_in_every_version() -> None:
    """Stores, certificates and directories have ids, and nodes of two versions may be in one network."""
    assert derive_node_id(b"sensor") == 4663084449552202168


def test_files_that_are_no_keys_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"carrycast-network:", b"carrycast-network:AAAA", b"carrycast-x:AAAA", b"\xff\xfe", b"a\nb\n"):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(UserError, match="is no key file"):
            read_key(tmp_path / "bad", KeyKind.NETWORK)
    commands.make_network_secret(tmp_path / "n.key")
    (tmp_path / "n.key").chmod(0o644)
    with pytest.raises(UserError, match="others may read this secret"):
        read_key(tmp_path / "n.key", KeyKind.NETWORK)
    with pytest.raises(UserError, match="is there already"):
        write_key(tmp_path / "n.key", KeyKind.NETWORK, bytes(32))
    with pytest.raises(WorkError, match="cannot write"):
        write_key(tmp_path / "bad" / "n.key", KeyKind.NETWORK, bytes(32))


@pytest.mark.parametrize("days", ["0", "-1", "nan", "inf", "40000"])
def test_a_certificate_has_an_end(days: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--days"):
        commands.certify(tmp_path / "a", tmp_path / "b", tmp_path / "c", "car", days=float(days))


def test_a_certificate_is_good_as_it_was_signed_and_for_its_time() -> None:
    issued = OPERATOR.keys(1).certificate
    judge = OPERATOR.verifier(2).membership
    assert not isinstance(judge.verify_credential(issued), Rejection)
    for at in range(len(issued)):
        changed = issued[:at] + bytes([issued[at] ^ 1]) + issued[at + 1 :]
        assert isinstance(judge.verify_credential(changed), Rejection), at
    assert judge.verify_credential(b"") is judge.verify_credential(bytes(5000)) is Rejection.MALFORMED
    assert judge.verify_credential(Operator("x").keys(1).certificate) is Rejection.STRANGER
    assert (
        judge.verify_credential(OPERATOR.keys(1, issued_s=0.0, expires_s=time.time() - 1).certificate)
        is Rejection.EXPIRED
    )
    assert judge.verify_credential(OPERATOR.keys(1, issued_s=time.time() + 1e6).certificate) is Rejection.EXPIRED


def test_a_certificate_that_is_too_long_or_has_a_bad_filter_is_not_issued() -> None:
    def certificate(publish: str, name: str = "a") -> Certificate:
        return Certificate(FORMAT, 1, bytes(32), name, 0.0, 1.0, publish)

    long = " or ".join(f"n = {n}" for n in range(400))
    for bad in (certificate(long), certificate("n >"), certificate("n = 1", "")):
        with pytest.raises(UserError):
            issue_certificate(OPERATOR.key, bad)
    assert read_certificate(bytes(MAX_CERTIFICATE_BYTES + 1)) is None


def test_only_a_newer_list_of_the_operator_counts(tmp_path: Path) -> None:
    operator = Operator("of this test")
    judge = operator.keys(1, list_file=tmp_path / "list").make_membership()
    assert isinstance(judge, Certified)
    known = operator.keys(2).certificate
    assert not isinstance(judge.verify_credential(known), Rejection)
    first = operator.revoked(2)
    second = operator.revoked(3)
    assert not judge.take_revocations(Operator("another").revoked(2))
    assert not judge.take_revocations(b"")
    assert judge.take_revocations(second)
    assert not judge.take_revocations(first), "an older one, replayed"
    assert judge.verify_credential(known) is Rejection.REVOKED
    again = operator.keys(1, list_file=tmp_path / "list").make_membership()
    assert again.number == 2, "it was written down"


def test_a_list_ends_where_it_would_not_be_taken() -> None:
    """Some 140,000 nodes: longer ones are refused where they are made."""
    many = dict.fromkeys(range(2**62, 2**62 + 150_000), RevocationTimes(1e9, 1e12))
    with pytest.raises(UserError, match="at most 4 MiB"):
        revoke_nodes(OPERATOR.key, RevocationList(), many, 1e9)
    made = revoke_nodes(OPERATOR.key, RevocationList(), dict(list(many.items())[:100_000]), 1e9)
    assert read_revocation_list(OPERATOR.key.public, made.encode_delta(0)) == made


@pytest.mark.guarantee("signed")
def test_an_event_is_good_as_it_was_signed() -> None:
    made = sign_event(OPERATOR.verifier(1).signatures, EVENT)
    judge = OPERATOR.verifier(2).signatures
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Event)
    assert judge.verify(sent) is None
    assert strip_signature(sent) == EVENT
    changes: list[dict[str, object]] = [
        {"id": EventId(1, 6)},
        {"id": EventId(2, 5)},
        {"attributes": {**EVENT.attributes, "n": 2}},
        {"payload": b"x" + sent.payload[1:]},
        {"payload": sent.payload[1:]},
        {"time_s": 18.0},
        {"lease_s": 61.0},
        {"access": None},
        {"derived_from": ()},
    ]
    for change in changes:
        assert judge.verify(msgspec.structs.replace(sent, **change)) is EventFlaw.FORGED, change
    assert judge.verify(EVENT) is EventFlaw.UNSIGNED
    assert judge.verify(msgspec.structs.replace(EVENT, payload=b"")) is EventFlaw.UNSIGNED
    assert judge.verify(sent) is None, "what came in between does not hide it"


def test_a_signature_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = sign_event(OPERATOR.verifier(1).signatures, EVENT)
    judge = OPERATOR.verifier(2).signatures
    calls: list[bytes] = []

    def counted(public: bytes, signature: bytes, purpose: bytes, text: bytes) -> bool:
        calls.append(purpose)
        return is_signed_by(public, signature, purpose, text)

    monkeypatch.setattr("carrycast.node.security.event_signatures.is_signed_by", counted)
    for _ in range(10):
        assert judge.verify(sent) is None
    assert calls == [b"event"]


def test_a_signature_for_one_purpose_is_none_for_another() -> None:
    key = SigningKey(private_of("a"))
    signature = key.sign(b"event", b"text")
    assert is_signed_by(key.public, signature, b"event", b"text")
    assert not is_signed_by(key.public, signature, b"reply", b"text")
    assert not is_signed_by(key.public, signature[:-1], b"event", b"text")
    assert not is_signed_by(b"short", signature, b"event", b"text")


def test_a_key_that_everybody_shares_a_secret_with_is_refused() -> None:
    assert DhKeyPair().dh(bytes(32)) is None
    assert Cipher(bytes(32)).decrypt(1, b"short", b"") is None


def test_each_number_is_taken_once_however_far_it_jumps() -> None:
    window = ReplayWindow()
    for number in (5, 3, 5000, 4999, 2**62):
        assert window.check(number) is ReplayCheck.NEW
        window.add(number)
        assert window.check(number) is ReplayCheck.DUPLICATE
    assert window.check(4) is window.check(5000) is ReplayCheck.TOO_OLD


def refreshed(subscription: Subscription) -> tuple[Message, Codec]:
    """A subscription on its way to a topic's holder, and the codec of who judges it."""
    from carrycast.protocols.topic_holder.messages import Refresh, SubscriptionEntry

    plan = make_stack_plan(
        {"name": "topic_holder", "variant": "broker_gpsr"}, None, None, frozenset(Capability), "test"
    )
    vetted = OPERATOR.verifier(2).add_verification(plan)
    return Refresh("t", SubscriptionEntry(subscription, Position(0, 0), (0, 0))), vetted.codecs[Layer.DISSEMINATION]


@pytest.mark.guarantee("certified")
def test_attributes_of_a_subscriber_are_what_its_operator_says() -> None:
    certified = OPERATOR.verifier(1, subscribe="road = 'A1'", attributes={"rank": "major"}).attach_certificate

    def judged(subscription: Subscription) -> str:
        message, codec = refreshed(subscription)
        try:
            assert codec.decode(codec.encode(message)) == message
        except DecodeError as error:
            return str(error.flaw)
        return "good"

    def asked(filter: str = "road = 'A1'", node: int = 1, **attributes: object) -> Subscription:
        return Subscription(SubscriptionId(node, 0), filter, attributes=attributes)  # type: ignore[arg-type]

    assert judged(certified(asked(rank="major"))) == "good"
    assert judged(certified(asked())) == "good"
    assert judged(asked(rank="major")) == "subscription_uncertified"
    assert judged(certified(asked(node=3))) == "subscription_uncertified"
    assert judged(certified(asked(rank="general"))) == "subscription_not_allowed"
    assert judged(certified(asked(unit=7))) == "subscription_not_allowed"
    assert judged(certified(asked("speed > 3"))) == "subscription_not_allowed"
    texts: tuple[Scalar, ...] = ("x", "", 5, "AAAA" * 1000)
    for text in texts:
        bad = Subscription(SubscriptionId(1, 0), "road = 'A1'", attributes={CERTIFICATE: text})
        assert judged(bad) == "subscription_uncertified"


def test_without_the_library_a_node_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(WorkError, match=r"pip install 'carrycast\[keys\]'"):
        SigningKey(bytes(32))
    assert "carrycast[keys]" in primitives.MISSING


WRITTEN_CERTIFICATE = bytes.fromhex(
    "9c0207c42091eaa1ecea53b8500c8dd74d5eba1a6014ebd66223279d3138fc1698d92d28a1a56361722d37cb408f400000000000"
    "cb409f420000000000b0726f6164206973206e6f74206e756c6ca872616e6b203d203182a472616e6b01a178cb3fe00000000000"
    "00cb404e000000000000c4109cfe66b5758c34833a6c2d4190c45a05c440f983163a95dbba8f56bcbd0bf4c5dd20c74aa8fb6b3b"
    "1fc0fa3554d0134bfc7a30400e9a7ff38ee15fcbbae4bca7df696bd9785bc3d295ad85e04e19c7ee9b0b"
)
WRITTEN_CARD = bytes.fromhex(
    "980207c42091eaa1ecea53b8500c8dd74d5eba1a6014ebd66223279d3138fc1698d92d28a1cb408f400000000000cb409f420000"
    "000000cb404e000000000000c42049fd8b4e4dc81722757387860f6f2c7db25fcb4a66fe56fd0606dac54f9eeccfc440f983163a"
    "95dbba8f56bcbd0bf4c5dd20c74aa8fb6b3b1fc0fa3554d0134bfc7a30400e9a7ff38ee15fcbbae4bca7df696bd9785bc3d295ad"
    "85e04e19c7ee9b0b"
)
WRITTEN_LIST = bytes.fromhex(
    "960202cb409c200000000000820793cb4097700000000000cb40a7700000000000010893cb409a900000000000cb40a771000000"
    "00000200c4403a942063c2d1166aab48019170bb5ae054c30533ef3b80fda9948f09c40fb1d2c5a75c63e62daff2b581d22c9d72"
    "b9ffda299902bc1b8b66ca3393d67975e001"
)
WRITTEN_CHANGES = bytes.fromhex(
    "960202cb409c200000000000810893cb409a900000000000cb40a77100000000000201c4403a942063c2d1166aab48019170bb5a"
    "e054c30533ef3b80fda9948f09c40fb1d2c5a75c63e62daff2b581d22c9d72b9ffda299902bc1b8b66ca3393d67975e001"
)


def test_certificates_and_lists_of_this_format_stay_readable() -> None:
    """Files of operators hold these bytes, and so do nodes of other versions."""
    certificate = read_certificate(WRITTEN_CERTIFICATE)
    key = SigningKey(private_of(7)).public
    given = (FORMAT, 7, key, "car-7", 1000.0, 2000.5, "road is not null", "rank = 1", {"rank": 1, "x": 0.5}, 60.0)
    assert certificate is not None
    assert msgspec.structs.astuple(certificate)[:10] == given
    assert msgspec.msgpack.encode(certificate) == WRITTEN_CERTIFICATE
    assert encode_card(certificate) == WRITTEN_CARD
    card = read_card(WRITTEN_CARD)
    assert card is not None
    assert is_issued_by(OPERATOR.key.public, card)
    first = revoke_nodes(OPERATOR.key, RevocationList(), {7: RevocationTimes(1500.0, 3000.0)}, 1600.0)
    second = revoke_nodes(OPERATOR.key, first, {8: RevocationTimes(1700.0, 3000.5)}, 1800.0)
    assert (second.encode_delta(0), second.encode_delta(1)) == (WRITTEN_LIST, WRITTEN_CHANGES)
    assert read_revocation_list(OPERATOR.key.public, WRITTEN_LIST) == second
    assert read_revocation_list(OPERATOR.key.public, WRITTEN_CHANGES, first) == second
