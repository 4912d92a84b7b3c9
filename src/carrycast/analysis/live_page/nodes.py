"""Asks live nodes, again and again, what happened to them."""

import threading
import time
from collections.abc import Sequence

from carrycast.analysis.live_page.feed import LiveFeed
from carrycast.errors import UserError, WorkError
from carrycast.node.api import Client, WatchResponse, connect

MAX_CHANNELS = 256
"""Each is asked by a thread of its own, so that one that hangs holds up no other."""
PERIOD_S = 0.5
HOLD_S = 1.2
"""After that what happened is put in order: everybody has been asked twice since."""
BATCHES = 10
"""Answers that are read at a time from a node that has much to tell."""
PATIENCE_S = 3.0


class Watchers:
    """One network, watched until it is left."""

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
        """Find every node; a WorkError names the first that does not answer. From then on they may come and go."""
        clients = []
        try:
            for address in self._addresses:
                clients.append(connect(address, PATIENCE_S))
                # A node of an older carrycast says here that it does not understand.
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
        """Ask no more."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PERIOD_S)

    def story(self, chapter: int, after: int) -> dict[str, object]:
        """What a page that has so much of a chapter does not have yet."""
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
                # It is gone, or it will be soon; its story says so, and it may come back.
                pass
            finally:
                if client is not None:
                    client.close()
                    client = None
            # Longer than what is told of a new life is put back in time.
            self._stop.wait(2 * PERIOD_S)

    def _listen(self, client: Client) -> None:
        """One life of a node."""
        node, said = client.status().node, client.watch()
        ahead_s = time.time() - said.time_s
        frames = said.frames
        try:
            self._report(node, "up", None)
            self._add_response(node, said, ahead_s, frames)
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
                    before, said = said, client.watch(said.next)
                    self._add_response(node, said, ahead_s, frames, before.frames != said.frames)
                    if not said.events:
                        break
                self._stop.wait(PERIOD_S)
        finally:
            self._report(node, "gone", None)

    def _report(self, node: int, what: str, told: object) -> None:
        with self._lock:
            self._feed.add_node(node)
            self._feed.report(node, time.time(), what, told)

    def _add_response(self, node: int, said: WatchResponse, ahead_s: float, frames: int, sent: bool = False) -> None:
        with self._lock:
            now_s = time.time()
            if said.subscriptions is not None:
                # They stood a moment ago: an event that comes with them in one answer may be for them.
                self._feed.report(node, now_s - PERIOD_S, "subscriptions", said.subscriptions)
            if said.holds:
                self._feed.report(node, now_s, "holds", said.holds)
            if sent:
                self._feed.report(node, now_s, "frames", said.frames - frames)
            self._feed.add_missed(said.missed)
            for event in said.events:
                self._feed.report(node, min(event.time_s + ahead_s, now_s), "event", event)
            # Also while nobody looks: what waits must not pile up.
            if now_s - self._released_s > PERIOD_S:
                self._released_s = now_s
                self._feed.release(now_s - HOLD_S)
