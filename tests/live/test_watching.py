"""A live network that is watched: the node's side, the page's server, and the page itself."""

import asyncio
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from carrycast.analysis.live_page.nodes import Watchers
from carrycast.analysis.live_page.server import PageServer
from carrycast.core.model import Position
from carrycast.errors import UserError
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node import event_feed
from carrycast.node.api.client import connect
from carrycast.node.node import LiveNode
from tests.cli.console import call
from tests.live.conftest import MakeConfig, Run
from tests.player.browser import HOW, Browser, browser


def test_a_node_tells_who_watches_it_what_happens_to_events(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    def client(address: str) -> None:
        with connect(address) as other, connect(address) as watcher:
            before = other.publish({"n": 0})
            first = watcher.watch()
            # What happened before is not told, but what the node has of it.
            assert (first.events, first.missed, first.holds) == ([], 0, [str(before)])
            assert first.subscriptions == []
            other.subscribe("n = 1")
            event = other.publish({"n": 1})
            said = watcher.watch(first.next)
            assert [(one.kind, one.event) for one in said.events] == [
                ("publish", str(event)),
                ("deliver", str(event)),
                ("store", str(event)),
            ]
            assert said.events[0].attributes == {"n": 1}
            assert said.subscriptions is not None
            assert [wish.filter for wish in said.subscriptions] == ["n = 1"]
            assert said.holds is None
            again = watcher.watch(said.next)
            assert (again.events, again.subscriptions) == ([], None)
            # From a number that never was it goes on with what comes next.
            assert watcher.watch(10**12).next == again.next

    async def story() -> None:
        async with LiveNode(config(1, "epidemic", control=tmp_path / "node.sock")) as node:
            assert node.control_address is not None
            await asyncio.to_thread(client, node.control_address)

    run(story())


def test_who_asks_too_late_is_told_how_much_it_missed(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "MAX_BUFFERED", 4)
    monkeypatch.setattr(event_feed, "MAX_READ", 3)

    def client(address: str) -> None:
        with connect(address) as watcher:
            begun = watcher.watch()
            for n in range(6):
                watcher.publish({"n": n})
            said = watcher.watch(begun.next)
            assert (said.missed, len(said.events)) == (2, 3)
            rest = watcher.watch(said.next)
            assert (rest.missed, len(rest.events)) == (0, 1)

    async def story() -> None:
        async with LiveNode(config(1, control=tmp_path / "node.sock")) as node:
            assert node.control_address is not None
            await asyncio.to_thread(client, node.control_address)
            # The last that leaves takes the memory along.
            await until(lambda: node.recorder.feed.read_after(0)[1] == [])

    run(story())


@contextmanager
def served(addresses: list[str]) -> Iterator[PageServer]:
    watchers = Watchers(addresses)
    with PageServer(watchers, "a <b>network</b>") as server:
        watchers.start()
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            watchers.stop()


def with_network(config: MakeConfig, run: Run, folder: Path, client: Callable[[list[str]], None]) -> None:
    """Three nodes in a line, of which two say where they are, and a client of them, which blocks."""
    places = {1: Position(0.0, 0.0), 2: Position(100.0, 50.0)}
    configs = [
        replace(config(id, "epidemic", control=folder / f"{id}.sock"), position=places.get(id)) for id in (1, 2, 3)
    ]

    async def story() -> None:
        async with LoopbackNetwork(configs) as network:
            network.line()
            await network.wait_until_discovered()
            await asyncio.to_thread(client, [str(folder / f"{id}.sock") for id in (1, 2, 3)])

    run(story())


def asked(server: PageServer, path: str, host: str | None = None, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_the_page_is_for_this_machine_and_for_who_knows_its_address(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    def client(addresses: list[str]) -> None:
        with served(addresses) as server:
            key, port = server.key, server.server_port
            assert server.server_address[0] == "127.0.0.1"
            status, page = asked(server, f"/{key}/")
            assert status == 200
            assert b"a &lt;b&gt;network" in page
            assert b"<b>network" not in page
            for path in ("/", "/story", "/wrong/", f"/{key}/..%2f", f"/{key}/other", f"/{key}x/"):
                assert asked(server, path)[0] == 404, path
            for host in ("example.org", f"example.org:{port}", f"127.0.0.1.example.org:{port}", ""):
                assert asked(server, f"/{key}/story", host)[0] == 403
            assert asked(server, f"/{key}/", f"localhost:{port}")[0] == 200
            assert asked(server, f"/{key}/", method="POST")[0] == 501
            for query in ("", "?after=-1", "?after=1e9&chapter=x", "?after=" + "9" * 99, "?chapter=%00"):
                status, body = asked(server, f"/{key}/story{query}")
                assert status == 200
                assert json.loads(body)["begins"] is True

    with_network(config, run, tmp_path, client)


@pytest.mark.skipif(browser() is None, reason=HOW)
def test_the_page_shows_what_happens(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    def client(addresses: list[str]) -> None:
        with served(addresses) as server, Browser(tmp_path / "profile") as window, connect(addresses[2]) as third:
            third.subscribe("n > 0")
            window.visit(server.address)
            state: dict[str, Any] = {}

            def shows(what: Callable[[dict[str, Any]], bool]) -> None:
                nonlocal state
                for _ in range(200):
                    state = window.run("carrycast.state()")
                    if what(state):
                        return
                    window.run("new Promise((done) => setTimeout(done, 50))")
                raise AssertionError(state)

            # In the order in which they were heard of.
            links, names = [[0, 1], [1, 2]], ["node-1", "node-2", "node-3"]
            shows(lambda state: sorted(state["links"]) == links and state["names"] == names)
            assert state["places"][:2] == [[0, 0], [100, 50]]
            assert state["playing"]
            with connect(addresses[0]) as first:
                event = first.publish({"n": 1, "text": "<img src=x onerror='window.harmed = 1'>"})
                shows(lambda state: state["runs"][0]["deliveries"] == 1)
                window.run(f"carrycast.followEvent('{event}')")
                shows(lambda state: state["runs"][0]["carries"] == [0, 1, 2])
                [shown] = state["runs"]
                assert (shown["wants"], shown["delivered"], shown["stored"]) == ([2], [2], [1, 1, 1])
                # Frames are told with the next look at the nodes.
                shows(lambda state: state["runs"][0]["frames"] > 0)
                first.move((40.0, 10.0))
                shows(lambda state: state["places"][0] == [40, 10])
            # Back to before it was published: nobody has it.
            window.run("carrycast.pause(), carrycast.seek(0)")
            assert window.run("carrycast.state().runs[0].reached") == []
            window.run("document.getElementById('live').click()")
            shows(lambda state: state["playing"] and state["runs"][0]["reached"] == [0, 1, 2])
            assert window.run("window.harmed") is None
            assert "onerror" in window.run("document.getElementById('following').textContent")
            assert window.errors == []

    with_network(config, run, tmp_path, client)


def test_a_node_that_goes_and_comes_back_is_down_in_between(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    one = config(1, "epidemic", control=tmp_path / "1.sock")

    async def story() -> None:
        async with LiveNode(one) as node:
            watchers = Watchers([str(tmp_path / "1.sock")])
            await asyncio.to_thread(watchers.start)
            node.publish({"n": 1})
            await asyncio.sleep(0.7)
        async with LiveNode(one):
            await until(lambda: codes(watchers) == [6, 1, 4, 6], within_s=15)
        await asyncio.to_thread(watchers.stop)

    def codes(watchers: Watchers) -> list[int]:
        rows: Any = watchers.story(-1, 0)["rows"]
        return [row[0] for row in rows if row[0] in (1, 4, 6)]

    run(story())


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.sock: is there twice"):
        Watchers(["a.sock", "b.sock", "a.sock"])
    with pytest.raises(UserError, match="at most 256 nodes"):
        Watchers([str(n) for n in range(257)])
    assert "no node answers at" in call("show", "--live", tmp_path / "none.sock").refusal(1)
    assert "name a scenario or a trace" in call("show").refusal()
    assert "--port: is for --live" in call("show", "quick.toml", "--port", "80").refusal()
    assert "0 to 65535" in call("show", "--live", "a.sock", "--port", "65536").refusal()
    assert "nothing of a scenario" in call("show", "--live", "a.sock", "--seed", "3").refusal()
