"""A headless browser, controlled by the Chrome DevTools Protocol over a pipe."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.patience import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = "no Chromium here; install it with: apt-get install chromium"


def browser() -> str | None:
    """The browser of this machine, if it has one."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


class Browser:
    """A browser with one page. The context manager ends it."""

    def __init__(self, profile: Path, size: tuple[int, int] = (1280, 800)) -> None:
        command = browser()
        assert command is not None, HOW
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The sandbox needs rights that containers lack. The browser opens our own page only.
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--hide-scrollbars", f"--window-size={size[0]},{size[1]}", f"--user-data-dir={profile}"]
        # The browser reads commands from descriptor 3 and writes responses to 4.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", command, *options, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._unread = b""
        self._number = 0
        self._opened = 0
        self._session: str | None = None
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Page.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    @property
    def process(self) -> int:
        """The main process of the browser."""
        return self._process.pid

    def open(self, page: Path, asked: str = "") -> float:
        """Open a file and wait until it is shown; return the milliseconds that its scripts took."""
        return self.visit(f"file://{page}", asked)

    def visit(self, address: str, asked: str = "") -> float:
        """Open an address and wait until it is shown; return the milliseconds that its scripts took."""
        # A different address each time, so that the previous page is not mistaken for it.
        self._opened += 1
        self.call("Page.navigate", url=f"{address}?{self._opened}{asked}")
        deadline = time.monotonic() + PATIENCE_S
        there = f"location.search === '?{self._opened}' && document.readyState === 'complete' && !!window.carrycast"
        while not self.run(there):
            assert time.monotonic() < deadline, f"{address} does not open: {self.errors}"
            time.sleep(0.05)
        return float(self.run("carrycast.ready"))

    def run(self, script: str) -> Any:
        """Evaluate an expression, and await it if it is a promise."""
        said = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, x: float, y: float) -> None:
        """Click the left mouse button."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and wait for its response."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"])[:500])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._unread += data
        line, self._unread = self._unread.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message
