"""The pictures of the player, taken in a real browser; or, of a page that is named, how fast it opens and plays.

python docs/pictures/player.py
python docs/pictures/player.py out/show-walk.html
"""

import argparse
import base64
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from driftcast.player import player_of_scenario  # noqa: E402
from driftcast.scenario.overrides import apply  # noqa: E402
from driftcast.scenario.scenario import load  # noqa: E402
from tests.player.browser import Browser  # noqa: E402

PAGES = {
    # scenario and protocols: pictures by name, with what the address asks for
    ("sparse", ("flooding", "epidemic")): {"player": "#event=1:0&t=160"},
    ("city", ("epidemic",)): {
        "player-begin": "#t=0",
        "player-event": "#event={event}&t={late}",
        "player-node": "#node=20&t=100",
    },
}
SEED = 1
LATER_S = 12
"""After an event was published some have it and some still want it."""
PLAYED_S = 5


def pictures(window: Browser, folder: Path) -> None:
    """All of them, into this folder."""
    for (file, protocols), wanted in PAGES.items():
        scenario = load(ROOT / "examples" / f"{file}.toml")
        page = folder / f"{file}.html"
        page.write_text(player_of_scenario({one: apply(scenario, {"protocol": one}) for one in protocols}, SEED))
        window.open(page)
        window.press("e")
        event, late_s = window.run("[driftcast.state().event, driftcast.state().time_s]")
        for name, asked in wanted.items():
            window.open(page, asked.format(event=event, late=late_s + LATER_S))
            for _ in range(3):
                window.run("new Promise(requestAnimationFrame)")
            taken = window.call("Page.captureScreenshot", format="png")["data"]
            (Path(__file__).parent / f"{name}.png").write_bytes(base64.b64decode(taken))
            print(name, window.run("driftcast.state().time_s"), "s")


def measure(window: Browser, page: Path) -> None:
    """How long it takes to open, and how many frames a second it draws when it plays."""
    begun = time.monotonic()
    scripts_ms = window.open(page.resolve())
    window.run("new Promise(requestAnimationFrame)")
    opened_s = time.monotonic() - begun
    script = f"""new Promise((done) => {{
      driftcast.play();
      const begun = performance.now();
      let frames = 0, worst = 0, last = begun;
      const count = (now) => {{ frames++; worst = Math.max(worst, now - last); last = now;
        if (now - begun < {PLAYED_S * 1000}) requestAnimationFrame(count); else done([frames, now - begun, worst]); }};
      requestAnimationFrame(count); }})"""
    frames, lasted_ms, worst_ms = window.run(script)
    began = time.monotonic()
    window.run(f"driftcast.seek({window.run('driftcast.state().duration_s')} * 0.99), driftcast.seek(1)")
    size = page.stat().st_size / 1e6
    print(f"{page}: {size:.1f} MB; opens in {opened_s:.2f} s (scripts {scripts_ms / 1000:.2f} s);", end=" ")
    print(f"{frames / lasted_ms * 1000:.0f} frames a second, the longest {worst_ms:.0f} ms;", end=" ")
    print(f"to the end and back in {time.monotonic() - began:.2f} s")


def main() -> None:
    """The pictures, or the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", type=Path)
    page: Path | None = parser.parse_args().page
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder) / "profile", (1200, 700)) as window:
        if page is None:
            pictures(window, Path(folder))
        else:
            measure(window, page)


if __name__ == "__main__":
    main()
