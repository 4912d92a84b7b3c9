"""`policy` and `request`: what people write is read or refused with its place, and a live network does as it says."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.console import call
from tests.cli.nodes import running_node, status_of, stop, until
from tests.patience import PATIENCE_S

SLOW = "policy slow\nroles sensor\nthen { set discovery.period_s = 0.2 }\n"
FAST = "policy fast\nroles sensor\nif { battery > 0.5 }\nthen { set discovery.period_s = 0.1 }\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_check_reads_policies_without_a_network(tmp_path: Path) -> None:
    done = call("policy", "check", written(tmp_path, "slow.policy", SLOW))
    assert (done.status, done.out, done.err) == (0, "slow version 1: in order\n", "")
    json_form = '{"id": "slow", "roles": [["sensor"]], "actions": [{"do": "run", "command": "led"}]}'
    done = call("policy", "check", written(tmp_path, "slow.json", json_form), "--json")
    assert done.object()["policies"] == [{"id": "slow", "version": 1}]


def test_check_names_the_file_the_line_the_column_and_what_was_expected(tmp_path: Path) -> None:
    bad = written(tmp_path, "bad.policy", "policy slow\nroles sensor\nif { battery < }\nthen { run led }\n")
    line = call("policy", "check", bad).refusal()
    assert line == f"carrycast: {bad}: line 3, column 16: expected a value, not '}}'"
    assert "cannot be read" in call("policy", "check", tmp_path / "none.policy").refusal()
    assert "there is no policy in it" in call("policy", "check", written(tmp_path, "empty", "# nothing\n")).refusal()


def test_check_finds_conflicts_among_files_and_says_so_by_its_status(tmp_path: Path) -> None:
    files = [written(tmp_path, "slow.policy", SLOW), written(tmp_path, "fast.policy", FAST)]
    done = call("policy", "check", *files)
    assert done.status == 1
    assert done.out == "slow version 1: read\nfast version 1: read\n"
    assert done.err.startswith("conflict: fast (version 1) and slow (version 1) both apply to a node that is sensor")
    higher = written(tmp_path, "fast.policy", FAST.replace("policy fast", "policy fast priority 1"))
    done = call("policy", "check", files[0], higher)
    assert done.status == 0
    assert done.err.startswith("decided by priority: ")


def test_with_all_kinds_of_nodes_known_overlap_is_exact(tmp_path: Path) -> None:
    relay = FAST.replace("roles sensor", "roles relay")
    files = [written(tmp_path, "slow.policy", SLOW), written(tmp_path, "fast.policy", relay)]
    for kinds, status in ((None, 0), ("sensor,relay", 0), ("sensor+relay,relay", 1)):
        told = [] if kinds is None else ["--kinds", kinds]
        assert call("policy", "check", *files, *told).status == status


def test_the_same_policy_in_two_files_is_refused(tmp_path: Path) -> None:
    files = [written(tmp_path, "one", SLOW), written(tmp_path, "two", SLOW)]
    assert "there is another policy slow above" in call("policy", "check", *files).refusal()


@pytest.mark.parametrize(
    "verb", [["publish", "x"], ["withdraw", "x"], ["list"], ["history", "x"], ["state"], ["status"]]
)
def test_all_else_needs_a_node(verb: list[str]) -> None:
    assert "--node" in call("policy", *verb).refusal()


CONFIG = """
name = "{name}"
roles = [{roles}]
directory = {{ broker = ["a", "b"] }}
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
period_s = 0.05
peers = [{peers}]
[protocol]
name = "tree"
group_s = 0.2
refresh_s = 0.5
[store]
file = "{name}.db"
[control]
socket = "{name}.sock"
[[applications]]
name = "{application}"
settings = {{ {settings} }}
"""


def config(folder: Path, name: str, application: str, *peers: str, **more: object) -> Path:
    values = {"roles": '"broker"', "port": 0, "settings": "", **more}
    told = ", ".join(f'"{peer}"' for peer in peers)
    return written(folder, f"{name}.toml", CONFIG.format(name=name, application=application, peers=told, **values))


@pytest.mark.live
def test_a_policy_is_retrieved_and_enforced_by_a_node_that_starts_later(tmp_path: Path) -> None:
    """Processes: a tool, a repository, and a node that comes afterwards; the repository is killed and starts again."""
    a, b, c = (tmp_path / f"{name}.sock" for name in "abc")
    policy = written(tmp_path, "slow.policy", SLOW)
    with running_node(config(tmp_path, "a", "policy_tool", settings="stored_s = 20")) as tool:
        address = str(status_of(a)["address"])
        store = config(tmp_path, "b", "policy_repository", address)
        with running_node(store) as repository:
            port = str(status_of(b)["address"]).rpartition(":")[2]
            until(lambda: call("policy", "check", policy, "--node", a).err == "")
            told = call("policy", "publish", policy, "--node", a, "--json").object()
            stored = {"id": "slow", "version": 1, "stored_by": [status_of(b)["node"]]}
            assert told["published"] == [stored]
            # Again it would be the same version.
            assert "give this one 2 or more" in call("policy", "publish", policy, "--node", a).refusal()
            repository.send_signal(signal.SIGKILL)
            repository.wait(PATIENCE_S)
        config(tmp_path, "b", "policy_repository", address, port=port)
        with running_node(store) as repository:
            state = call("policy", "state", "--node", b, "--json").object()
            assert state == {"policy_repository": {"active": True, "policies": ["slow version 1"]}}
            late = config(tmp_path, "c", "policy_decision", address, roles='"sensor"', settings="retry_s = 0.2")
            with running_node(late) as node:

                def in_force() -> object:
                    return call("policy", "state", "--node", c, "--json").object()["policy_decision"]

                until(lambda: isinstance(told := in_force(), dict) and told["in_force"] == ["slow version 1"])
                listed = call("policy", "list", "--node", a)
                assert "policy slow\nroles sensor" in listed.out
                events = call("request", "policy.id is not null", "--node", c, "--json").object()
                assert events["complete"] is True
                assert len(events["events"]) == 1  # type: ignore[arg-type]
                assert "published, stored by" in call("policy", "withdraw", "slow", "--node", a).out
                until(lambda: isinstance(told := in_force(), dict) and told["in_force"] == [])
                history = call("policy", "history", "slow", "--node", a, "--json").object()
                assert [one["withdrawn"] for one in json.loads(json.dumps(history["policies"]))] == [False, True]
                assert call("policy", "list", "--node", a).out == ""
                assert stop(node)[0] == 0
            assert stop(repository)[0] == 0
        assert stop(tool)[0] == 0


@pytest.mark.live
def test_a_policy_published_while_its_repository_is_down_is_managed_by_names(tmp_path: Path) -> None:
    """Processes: a tool, a node that enforces and one that cannot; the repository comes when all is over."""
    a, b = tmp_path / "a.sock", tmp_path / "b.sock"
    policy = written(tmp_path, "slow.policy", SLOW)
    wrong = written(tmp_path, "wrong.policy", "policy wrong\nroles sensor\nthen { run lamp }\n")
    tool = config(tmp_path, "a", "policy_tool", settings="stored_s = 0.2, attempts = 1, patience_s = 1")
    with running_node(tool):
        address = str(status_of(a)["address"])
        node = config(tmp_path, "c", "policy_decision", address, roles='"sensor"', settings="refetch_s = 3600")
        with running_node(node):
            for file in (policy, wrong):

                def held(file: Path = file) -> bool:
                    """Until the broker knows the subscription of the node."""
                    call("policy", "publish", file, "--node", a, "--anyway", "--next")
                    return f"c (decision): {'enforced' if file == policy else 'failed'}" in (
                        call("policy", "status", file.stem, "--node", a).out
                    )

                until(held)
            shown = call("policy", "status", "wrong", "--node", a).out
            assert "c (decision): failed: run lamp: refused: this node has no command lamp" in shown
            state = call("policy", "state", "--node", tmp_path / "c.sock", "--json").object()["policy_decision"]
            assert isinstance(state, dict)
            assert [name.split()[0] for name in state["in_force"]] == ["slow"]
            assert state["failed"][0].startswith("wrong version")
            assert (
                "a node sea has not been heard of"
                in call("policy", "status", "--at-node", "sea", "--node", a).refusal()
            )
            assert call("policy", "list", "--node", a).err.startswith("no repository has reported slow version")
            # A repository that has never heard of it.
            with running_node(config(tmp_path, "b", "policy_repository", address)) as repository:

                def stored() -> list[str]:
                    told = call("policy", "state", "--node", b, "--json").object()["policy_repository"]
                    assert isinstance(told, dict)
                    return [name.split()[0] for name in told["policies"]]

                until(lambda: stored() == ["slow", "wrong"], 60)
                assert "b (repository): stored" in call("policy", "status", "slow", "--node", a).out
                assert "published, stored by b" in call("policy", "withdraw", "slow", "--node", a).out
                until(lambda: "c (decision): withdrawn" in call("policy", "status", "slow", "--node", a).out)
                assert stop(repository)[0] == 0
