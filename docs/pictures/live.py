"""The picture of a live network in the player: the three nodes of examples/live, watched while one of them publishes.

python docs/pictures/live.py

And a page of a report, as it is on the screen:

python docs/pictures/live.py out/tour/index.html docs/pictures/tour-page.png
"""

import argparse
import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.player.browser import Browser  # noqa: E402

NODES = ("car-1", "car-2", "roadside-unit")
ADDRESSES = ("run/car-1.sock", "run/car-2.sock", "127.0.0.1:7413")
MEETING_S = 6.0
LAG_S = 4.0
"""After the event; the page lags two seconds behind."""


@contextmanager
def command(folder: str, *words: str) -> "Iterator[subprocess.Popen[str]]":
    """One that goes on until the picture is taken."""
    with subprocess.Popen(
        [sys.executable, "-m", "carrycast", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def live(window: Browser) -> str:
    """The nodes of the examples, and an event that is followed."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        for name in NODES:
            shutil.copy(ROOT / "examples" / "live" / f"{name}.toml", folder)
            running.enter_context(command(folder, "node", f"{name}.toml"))
        while not all((Path(folder) / address).exists() for address in ADDRESSES[:2]):
            time.sleep(0.1)
        running.enter_context(command(folder, "sub", "speed > 30", "--node", ADDRESSES[1]))
        time.sleep(MEETING_S)
        page = running.enter_context(command(folder, "show", "--live", *ADDRESSES))
        assert page.stdout is not None
        window.visit(page.stdout.readline().split()[1].rstrip(";"))
        with command(folder, "pub", "speed=31", "road=A1", "--node", ADDRESSES[0]) as published:
            published.wait()
        time.sleep(LAG_S)
        window.press("e")
        window.press("End")
        return taken(window)


def taken(window: Browser) -> str:
    """What is on the screen."""
    for _ in range(3):
        window.run("new Promise(requestAnimationFrame)")
    return str(window.call("Page.captureScreenshot", format="png")["data"])


def main() -> None:
    """The live network, or a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", type=Path)
    parser.add_argument("picture", nargs="?", type=Path, default=Path(__file__).parent / "player-live.png")
    given = parser.parse_args()
    size = (1200, 700) if given.page is None else (1000, 1500)
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile), size) as window:
        if given.page is None:
            picture = live(window)
        else:
            window.call("Page.navigate", url=given.page.resolve().as_uri())
            time.sleep(2)
            picture = taken(window)
    given.picture.write_bytes(base64.b64decode(picture))
    print(given.picture)


if __name__ == "__main__":
    main()
