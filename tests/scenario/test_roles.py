"""Roles that are subsets of others or disjoint from them, and protocols that need roles."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from carrycast.core.protocol import Protocol, Settings
from carrycast.errors import UserError
from carrycast.node.config import load_config
from carrycast.sim.engine.simulation import Simulation
from carrycast.sim.scenario.roles import Role, RoleEntry, check_roles, draw_roles
from tests.simulation.worlds import line, register


class Brokers(Protocol):
    """Needs the role of brokers, and the roles that its settings name."""

    class Knobs(Settings, frozen=True):
        extra: str = ""

        def needs_roles(self) -> frozenset[str]:
            return frozenset({self.extra}) if self.extra else frozenset()

    name = "brokers"
    settings_type = Knobs
    needs_roles = frozenset({"broker"})


def test_brokers_producers_and_consumers_keep_apart() -> None:
    # [002 §4.1] 20 brokers, 10 producers and 60 consumers on 90 of 100 nodes.
    roles: dict[str, RoleEntry] = {
        "consumer": Role(nodes=60, apart=["broker", "producer"]),
        "producer": Role(nodes=10, apart=["broker"]),
        "broker": 20,
    }
    drawn = draw_roles(roles, 100, 7, "test")
    assert list(drawn) == ["consumer", "producer", "broker"]
    assert [len(nodes) for nodes in drawn.values()] == [60, 10, 20]
    assert len({node for nodes in drawn.values() for node in nodes}) == 90
    assert draw_roles(roles, 100, 7, "test") == drawn != draw_roles(roles, 100, 8, "test")
    assert draw_roles({"broker": 20}, 100, 7, "test")["broker"] == drawn["broker"], "streams of their own"


def test_brokers_live_on_nodes_of_consumers() -> None:
    # [002 §4.2] 15 consumers and 5 producers on 20 nodes; 5 brokers on consumers' nodes.
    roles: dict[str, RoleEntry] = {
        "producer": 5,
        "consumer": Role(apart=["producer"]),
        "broker": Role(nodes=5, within="consumer"),
    }
    drawn = draw_roles(roles, 20, 1, "test")
    assert len(drawn["consumer"]) == 15
    assert len(drawn["broker"]) == 5
    assert set(drawn["broker"]) < set(drawn["consumer"])


def test_a_share_is_one_of_what_is_left() -> None:
    roles: dict[str, RoleEntry] = {
        "a": [0, 1, 2, 3],
        "b": Role(nodes="50%", within="a"),
        "c": Role(nodes="50%", apart=["a"]),
    }
    drawn = draw_roles(roles, 10, 1, "test")
    assert (len(drawn["b"]), len(drawn["c"])) == (2, 3)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 40), st.integers(0, 40))
def test_whatever_is_drawn_keeps_the_rules_or_is_refused(seed: int, nodes: int, a: int, b: int) -> None:
    roles: dict[str, RoleEntry] = {
        "a": min(a, nodes),
        "b": Role(nodes=min(b, nodes), apart=["a"]),
        "c": Role(nodes="40%", within="b"),
    }
    try:
        drawn = draw_roles(roles, nodes, seed, "test")
    except UserError:
        assert min(a, nodes) + min(b, nodes) > nodes
        return
    assert not set(drawn["a"]) & set(drawn["b"])
    assert set(drawn["c"]) <= set(drawn["b"])


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        ({"a": Role(within="b")}, "roles.a: there is no role 'b'; there are a"),
        ({"a": Role(within="b"), "b": Role(apart=["a"]), "c": 1}, "roles: a, b refer to each other in a circle"),
        ({"a": Role(apart=["a"])}, "roles: a refer to each other in a circle"),
        ({"a": 3, "b": Role(nodes=4, within="a")}, "roles.b: 4 nodes, but only 3 are within a"),
        ({"a": 3, "b": Role(nodes=9, apart=["a"])}, "roles.b: 9 nodes, but only 7 are apart from a"),
        (
            {"a": [0], "b": [1, 0], "c": Role(nodes=2, within="b", apart=["a"])},
            "roles.c: 2 nodes, but only 1 are within b and apart from a",
        ),
        ({"a": [0, 1], "b": Role(nodes=[5, 1], apart=["a"])}, "roles.b: node 1 is not apart from a"),
        ({"a": Role(nodes=11)}, "roles.a: a number of nodes from 0 to 10, not 11"),
    ],
)
def test_roles_that_cannot_be_given_are_refused_in_one_line(roles: dict[str, RoleEntry], told: str) -> None:
    with pytest.raises(UserError) as refused:
        check_roles(roles, 10, "x.toml")
    assert str(refused.value).startswith(f"x.toml: {told}")
    assert "\n" not in str(refused.value)


def test_a_node_is_told_its_roles() -> None:
    scenario = line(roles={"end": [0, 2], "middle": {"apart": ["end"]}, "last": {"nodes": [2], "within": "end"}})
    simulation = Simulation(scenario, 1)
    simulation.start()
    hosts = [node.protocol.host for node in simulation.network.nodes]
    assert [host.roles for host in hosts] == [("end",), ("middle",), ("end", "last")]
    assert hosts[0].directory("middle") == (1,)


def test_a_protocol_is_refused_in_a_scenario_without_the_roles_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Brokers)
    with pytest.raises(UserError) as refused:
        line(protocol={"name": "brokers"}, roles={"brokre": [1]})
    assert str(refused.value) == ("line.toml: roles: brokers needs nodes with the role broker; there are brokre")
    line(protocol={"name": "brokers"}, roles={"broker": [1]})
    with pytest.raises(UserError, match="needs nodes with the role broker and producer; there are none"):
        line(protocol={"name": "brokers", "extra": "producer"})


def test_topics_that_nodes_of_a_role_hold_need_some() -> None:
    """Otherwise every event would be dropped because there is no holder, without an explanation."""
    with pytest.raises(UserError, match="topic_holder needs nodes with the role cluster_head; there are cluster-head"):
        line(protocol={"name": "topic_holder", "role": "cluster_head"}, roles={"cluster-head": [1]})
    line(protocol={"name": "topic_holder", "role": "cluster_head"}, roles={"cluster_head": [1]})
    line(protocol={"name": "topic_holder"})
    line(protocol={"name": "topic_holder", "variant": "broker_gpsr", "role": "cluster_head"})


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('roles = ["broker"]', None),
        ('[directory]\nbroker = ["b"]', None),
        ("", "knows nodes as broker; say what this one is, or give a [directory]"),
        ('roles = ["client"]', "knows nodes as broker; say what this one is, or give a [directory]"),
        (
            'roles = ["client"]\n[directory]\nbrokers = ["b"]',
            "needs nodes with the role broker; there are client, brokers",
        ),
    ],
)
def test_a_live_node_says_what_it_is_or_who_the_others_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str, told: str | None
) -> None:
    register(monkeypatch, Brokers)
    file = tmp_path / "node.toml"
    file.write_text(f'name = "a"\n{written}\n[listen]\nport = 7000\n[protocol]\nname = "brokers"\n')
    if told is None:
        assert load_config(file).plan.protocol is Brokers
    else:
        with pytest.raises(UserError) as refused:
            load_config(file)
        assert str(refused.value) == f"{file}: roles: brokers {told}"
