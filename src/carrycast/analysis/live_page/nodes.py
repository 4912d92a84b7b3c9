"""Polls live nodes for their events, positions, neighbors and subscriptions."""

import threading
import time
from collections.abc import Sequence

from carrycast.analysis.live_page.feed import LiveFeed
from carrycast.errors import UserError, WorkError
from carrycast.node.api import Client, WatchResponse, connect

MAX_CHANNELS = 256
"""Each node is polled by its own thread, so that one that hangs does not delay others."""
PERIOD_S = 0.5
HOLD_S = 1.2
"""Reports are held this long before they are sorted: each node has been polled twice meanwhile."""
BATCHES = 10
"""The most responses that are read in one period from a node with many events."""
PATIENCE_S = 3.0


class Watchers:
    """The threads that poll the nodes of one network."""

    def __init__(self, addresses: Sequence[str]) -> None:
        if len(addresses) > MAX_CHANNELS:
            raise UserError(f"at most {MAX_CHANNELS} nodes can be watched at once, not {len(addresses)}")
        twice = sorted({address for address in addresses if addresses.count(address) > 1})
        if twice:
            raise UserError(f"{twice[0]}: is there twice; name each node once")
        self._addresses = addresses
        self._feed = LiveFeed(time.time())
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._released_s = 0.0
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Connect to every node; a WorkError names the first that does not answer. Later, nodes may come and go."""
        clients = []
        try:
            for address in self._addresses:
                clients.append(connect(address, PATIENCE_S))
                # A node of an older carrycast rejects this request.
                clients[-1].watch()
                status = clients[-1].status()
                self._feed.add_node(status.node, status.name)
        except BaseException:
            for client in clients:
                client.close()
            raise
        for address, client in zip(self._addresses, clients, strict=True):
            thread = threading.Thread(target=self._follow, args=(address, client), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PERIOD_S)

    def story(self, chapter: int, after: int) -> dict[str, object]:
        """The rows that a page does not have, after the first `after` rows of a chapter."""
        with self._lock:
            self._feed.release(time.time() - HOLD_S)
            return self._feed.story(chapter, after)

    def _follow(self, address: str, client: Client | None) -> None:
        while not self._stop.is_set():
            try:
                if client is None:
                    client = connect(address)
                self._listen(client)
            except (UserError, WorkError):
                # The node is gone, which `_listen` has reported. It may come back.
                pass
            finally:
                if client is not None:
                    client.close()
                    client = None
            # Longer than the period by which the reports of a restarted node are dated back.
            self._stop.wait(2 * PERIOD_S)

    def _listen(self, client: Client) -> None:
        """Poll a node until it stops."""
        node, response = client.status().node, client.watch()
        ahead_s = time.time() - response.time_s
        frames = response.frames
        try:
            self._report(node, "up", None)
            self._add_response(node, response, ahead_s, frames)
            known: object = None
            while not self._stop.is_set():
                status = client.status()
                with self._lock:
                    self._feed.add_node(status.node, status.name)
                    for neighbor in status.neighbors:
                        self._feed.add_node(neighbor)
                if (status.position, status.neighbors) != known:
                    known = (status.position, status.neighbors)
                    self._report(node, "place", status.position)
                    self._report(node, "neighbors", status.neighbors)
                for _ in range(BATCHES):
                    before, response = response, client.watch(response.next)
                    self._add_response(node, response, ahead_s, frames, before.frames != response.frames)
                    if not response.events:
                        break
                self._stop.wait(PERIOD_S)
        finally:
            self._report(node, "gone", None)

    def _report(self, node: int, what: str, value: object) -> None:
        with self._lock:
            self._feed.add_node(node)
            self._feed.report(node, time.time(), what, value)

    def _add_response(
        self, node: int, response: WatchResponse, ahead_s: float, frames: int, sent: bool = False
    ) -> None:
        with self._lock:
            now_s = time.time()
            if response.subscriptions is not None:
                # Dated back: an event in the same response may be for these subscriptions.
                self._feed.report(node, now_s - PERIOD_S, "subscriptions", response.subscriptions)
            if response.holds:
                self._feed.report(node, now_s, "holds", response.holds)
            if sent:
                self._feed.report(node, now_s, "frames", response.frames - frames)
            self._feed.add_missed(response.missed)
            for event in response.events:
                self._feed.report(node, min(event.time_s + ahead_s, now_s), "event", event)
            # Also without a viewer, so that held reports do not accumulate.
            if now_s - self._released_s > PERIOD_S:
                self._released_s = now_s
                self._feed.release(now_s - HOLD_S)
