"""Applications on live nodes: policies published at one are enforced at others, and outlive a restart."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from carrycast.core.protocol import Fact
from carrycast.core.protocol.application import Application, find_application
from carrycast.errors import UserError
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node.api import outbound_queue
from carrycast.node.api.client import connect
from carrycast.node.config import NodeConfig, load_config
from carrycast.node.node import LiveNode
from carrycast.node.runtime.actions import AllowedActions, AllowedCommand
from carrycast.node.runtime.application_host import ApplicationConfig
from carrycast.services.policy.repository import Repository
from tests.live.conftest import MakeConfig, Run

pytestmark = pytest.mark.live

PERIOD = "policy period roles sensor then { set discovery.period_s = 0.2 }"


def with_application(
    config: NodeConfig, name: str, allowed: AllowedActions | None = None, **settings: object
) -> NodeConfig:
    kind = find_application(name)
    one = ApplicationConfig(kind, msgspec.convert(settings, kind.settings_type))
    return replace(config, applications=(*config.applications, one), allowed=allowed or config.allowed)


def command(node: LiveNode, name: str, verb: str, /, **body: object) -> asyncio.Future[dict[str, object]]:
    """Return the report of an application."""
    told: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
    node.command(name, verb, msgspec.json.encode(body), lambda reply: told.set_result(msgspec.json.decode(reply)))
    return told


async def reported(tool: LiveNode, policies: int) -> list[dict[str, str]]:
    """The reports of a tool, once they are about so many policies."""
    for _ in range(200):
        found = (await command(tool, "policy_tool", "reports"))["reports"]
        assert isinstance(found, list)
        if len({one["policy"] for one in found}) >= policies:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("too few reports")


def test_a_policy_published_at_one_node_retunes_another(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        configs = [
            with_application(config(1, "epidemic"), "policy_tool", stored_s=10.0),
            with_application(config(2, "epidemic", store=tmp_path / "2.db"), "policy_repository"),
            with_application(config(3, "epidemic"), "policy_decision", roles=["sensor"]),
        ]
        async with LoopbackNetwork(configs) as network:
            network.link(1, 2)
            network.link(2, 3)
            await until(lambda: len(network.nodes[2].neighbors) == 2)
            told = await asyncio.wait_for(
                command(network.nodes[1], "policy_tool", "publish", text=PERIOD, anyway=True), 10
            )
            assert told["published"] == [{"id": "period", "version": 1, "stored_by": [2]}]

            async def enforced() -> list[object]:
                reports = (await command(network.nodes[1], "policy_tool", "reports"))["reports"]
                assert isinstance(reports, list)
                return [one["node"] for one in reports if one["what"] == "enforced"]

            for _ in range(100):
                if await enforced():
                    break
                await asyncio.sleep(0.05)
            assert await enforced() == [3]
            # A repository that is restarted has it all.
            await network.crash(2)
            node = await network.start(2)
            listed = await command(node, "policy_repository", "list")
            assert listed == {"active": True, "policies": ["period version 1"]}

    run(story())


def test_only_commands_of_the_list_run_with_its_arguments(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    touch = AllowedCommand((sys.executable, "-c", "import sys; open(sys.argv[1], 'w')"), ((str(mark),),))
    fails = AllowedCommand((sys.executable, "-c", "raise SystemExit('no lamp')"))
    allowed = AllowedActions(
        settings=False, commands={"touch": touch, "fails": fails, "absent": AllowedCommand(("/no/such",))}
    )
    text = "\n".join(
        [
            f"policy a roles all then {{ run touch '{mark}' }}",
            "policy b roles all then { run absent '/etc/passwd' }",
            "policy c roles all then { run fails }",
            "policy d roles all then { run rm '-rf' }",
            "policy e roles all then { set discovery.period_s = 2 }",
            "policy f roles all then { run nothing }",
        ]
    )

    async def story() -> None:
        made = with_application(config(1), "policy_tool", allowed, stored_s=0.2)
        made = with_application(made, "policy_decision")
        async with LiveNode(made) as node:
            await command(node, "policy_tool", "publish", text=text, anyway=True)
            reports = await reported(node, 6)
            told = {one["policy"]: (one["what"], one.get("told", "")) for one in reports}
            assert told["a"] == ("enforced", "")
            assert mark.exists()
            assert "absent may not be given these arguments" in told["b"][1]
            assert told["c"] == ("failed", "run fails: it ended with status 1: no lamp")
            assert "this node has no command rm" in told["d"][1]
            assert "are not for policies to change" in told["e"][1]
            assert "this node has no command nothing" in told["f"][1]

    run(story())


def test_a_live_cluster_manager_and_the_node_of_a_context_are_named_by_their_names(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """Live nodes have ids of 63 bits, hashes of names or keys, which nobody writes into a configuration."""
    boss, lamp = 2**62 + 7, 2**62 + 11

    async def story() -> None:
        manager = with_application(config(boss, "epidemic"), "policy_tool", stored_s=0.2)
        manager = with_application(manager, "policy_decision", manager=True)
        managed = with_application(
            config(lamp, "epidemic"), "policy_enforcement", manager=f"node-{boss}", roles=["sensor"], enroll_s=0.1
        )
        async with LoopbackNetwork([manager, managed]) as network:
            state = await command(network.nodes[lamp], "policy_enforcement", "list")
            assert state["manager"] == f"node-{boss}, which has not been heard of"
            network.link(boss, lamp)
            text = PERIOD.replace("then", "if { battery < 0.2 } then")

            async def state_of() -> object:
                """At the lamp, as the tool tells it."""
                told = await command(network.nodes[boss], "policy_tool", "status", node=f"node-{lamp}")
                policies = told.get("policies", [])
                assert isinstance(policies, list)
                return [row["state"] for policy in policies for row in policy["nodes"]]

            await command(network.nodes[boss], "policy_tool", "publish", text=text, anyway=True)
            network.nodes[boss].publish({"policy.context": f"node-{lamp}", "battery": 0.1}, lease_s=600)
            for _ in range(100):
                if await state_of() == ["enforced"]:
                    break
            assert await state_of() == ["enforced"]

    run(story())


def test_without_a_list_no_command_runs(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        made = with_application(with_application(config(1), "policy_tool", stored_s=0.1), "policy_decision")
        async with LiveNode(made) as node:
            await command(node, "policy_tool", "publish", text="policy a roles all then { run true }", anyway=True)
            [report] = await reported(node, 1)
            assert report["told"] == "run true: refused: this node has no command true"

    run(story())


class Clumsy(Application):
    """Writes, asks for something and raises."""

    name = "clumsy"

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        if verb == "ask":
            found = self.host.store.get(b"key")
            self.port.reply(command, msgspec.json.encode({"found": found is not None}))
            return
        if verb == "big":
            self.port.publish({}, b"x" * 100_000)
            self.port.reply(command, b"{}")
            return
        self.host.store.put(b"key", b"value")
        self.port.note(Fact("half"))
        if verb == "raise":
            raise RuntimeError("on purpose")
        self.port.reply(command, b"{}")


def test_an_application_that_raises_does_nothing_by_halves(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        made = replace(
            config(1, store=tmp_path / "1.db"), applications=(ApplicationConfig(Clumsy, Clumsy.settings_type()),)
        )
        async with LiveNode(made) as node:
            node.command("clumsy", "raise", b"{}", lambda body: None)
            assert await command(node, "clumsy", "ask") == {"found": False}
            assert node.drops["application_raised"] == 1
            await command(node, "clumsy", "big")
            assert node.drops["application_event_refused"] == 1
            await command(node, "clumsy", "keep")
        async with LiveNode(made) as node:
            assert await command(node, "clumsy", "ask") == {"found": True}
            with pytest.raises(UserError, match="does not run policy_tool"):
                node.command("policy_tool", "list", b"", lambda body: None)

    run(story())


def test_clients_command_and_request_through_the_control_channel(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    def client(address: str) -> None:
        with connect(address) as one:
            told = one.command("policy_tool", "publish", {"text": PERIOD, "anyway": True})
            assert told["published"] == [{"id": "period", "version": 1, "stored_by": [1]}]
            with pytest.raises(UserError, match="line 1, column 8: expected the name of a policy"):
                one.command("policy_tool", "check", {"text": "policy 1"})
            with pytest.raises(UserError, match="this node does not run nothing"):
                one.command("nothing", "x")
            # A protocol that stores nothing says so at once.
            assert one.request("policy.id is not null", 1.0) == ([], False)
            with pytest.raises(UserError, match="filter: expected"):
                one.request("x >")

    async def story() -> None:
        made = config(1, store=tmp_path / "1.db", control=tmp_path / "1.sock")
        made = with_application(with_application(made, "policy_tool", stored_s=10.0), "policy_repository")
        async with LiveNode(made) as node:
            assert node.control_address is not None
            await asyncio.to_thread(client, node.control_address)
            repository = node.application("policy_repository")
            assert isinstance(repository, Repository)
            assert [policy.id for policy in repository.catalog.active_policies()] == ["period"]

    run(story())


def test_clients_keep_events_and_ask_for_them(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    def client(address: str) -> None:
        with connect(address) as keeper, connect(address) as other:
            assert other.request("x > 0", 1.0) == ([], False)
            keeper.advertise("x > 0", stored=True)
            for x in (0, 1, 2):
                other.publish({"x": x})
            events, complete = other.request("x > 1", 1.0)
            assert ([event.attributes for event in events], complete) == ([{"x": 2}], True)
            later = other.subscribe("x < 2", history=True)
            event = later.next_event(5.0)
            assert event is not None
            assert event.attributes == {"x": 1}
            with pytest.raises(UserError, match="filter: expected"):
                other.advertise("x >")
            other.advertise("y = 1")
        with connect(address) as another:
            # What nobody says to keep any longer is not offered, once the node has noticed.
            found = [another.request("x > 0", 0.1) for _ in range(20)]
            assert found[-1] == ([], False)

    async def story() -> None:
        made = config(1, "tree", store=tmp_path / "1.db", control=tmp_path / "1.sock")
        made = replace(made, roles=("broker",), directory={"broker": (1,)})
        async with LiveNode(made) as node:
            assert node.control_address is not None
            await asyncio.to_thread(client, node.control_address)
        async with LiveNode(replace(made, keeps=("x > 0",))) as node:
            answers: list[object] = []
            closed: list[bool] = []
            node.request("x > 0", 1.0, lambda event, hops: answers.append(event.attributes["x"]), closed.append)
            await until(lambda: bool(closed))
            assert (answers, closed) == ([1, 2], [True]), "the store outlived the node"
        async with LiveNode(config(2)) as node:
            with pytest.raises(UserError, match="flooding makes no use of any"):
                node.advertise("x > 0", stored=True)
            with pytest.raises(UserError, match="flooding stores nothing that could be history"):
                node.subscribe("x > 0", None, history=True)

    run(story())


CONFIG = """
name = "a"
protocol = {{ name = "flooding" }}
roles = ["sensor"]
listen = {{ port = 0 }}
{store}

[[applications]]
name = "{name}"
settings = {{ {settings} }}

[enforcement.commands.led]
run = ["/bin/led"]
arguments = [["on"], ["off"]]
"""


def write(path: Path, name: str, settings: str = "", store: str = 'store = { file = "a.db" }') -> Path:
    path.write_text(CONFIG.format(name=name, settings=settings, store=store), "utf-8")
    return path


def test_a_configuration_names_applications_and_what_policies_may_do(tmp_path: Path) -> None:
    config = load_config(write(tmp_path / "a.toml", "policy_repository", 'roles = ["sensor"]'))
    assert [one.kind for one in config.applications] == [Repository]
    assert config.allowed == AllowedActions(True, {"led": AllowedCommand(("/bin/led",), (("on",), ("off",)))})


@pytest.mark.parametrize(
    ("name", "settings", "store", "says"),
    [
        ("policy_tool", "", 'keeps = ["x > 0"]', "keeps: flooding stores no events"),
        ("policy_tol", "", "", r"applications\[0\].name: there is no application 'policy_tol'"),
        ("policy_tool", "patience = 3", "", r"applications\[0\]: settings: unknown key 'patience'"),
        ("policy_repository", "", "", "policy_repository needs durable store"),
        ("policy_repository", "least_energy = 0.5", 'store = { file = "a.db" }', "needs energy"),
    ],
)
def test_a_mistake_in_it_is_named(tmp_path: Path, name: str, settings: str, store: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_config(write(tmp_path / "a.toml", name, settings, store))


def test_a_request_whose_answers_were_not_all_said_is_not_complete(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound_queue, "HIGH_WATER_BYTES", 1)
    monkeypatch.setattr(outbound_queue, "MAX_QUEUED", 5)

    def client(address: str) -> None:
        with connect(address) as one:
            one.advertise("x >= 0", stored=True)
            for x in range(20):
                one.publish({"x": x}, bytes(1000))
            assert [found[1] for found in (one.request("x < 5", 1.0), one.request("x >= 0", 1.0))] == [True, False]

    async def story() -> None:
        made = config(1, "tree", store=tmp_path / "1.db", control=tmp_path / "1.sock")
        async with LiveNode(replace(made, roles=("broker",), directory={"broker": (1,)})) as node:
            assert node.control_address is not None
            await asyncio.to_thread(client, node.control_address)
            assert node.drops["client_slow"] > 0

    run(story())
