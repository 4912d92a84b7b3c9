"""The pictures of the player, taken in a real browser; or, of a page that is named, how fast it opens and plays.

python docs/pictures/player.py
python docs/pictures/player.py out/show-walk.html
"""

import argparse
import base64
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from carrycast.analysis.player import player_of_scenario  # noqa: E402
from carrycast.sim.scenario.overrides import apply_overrides  # noqa: E402
from carrycast.sim.scenario.scenario import load_scenario  # noqa: E402
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
        scenario = load_scenario(ROOT / "examples" / f"{file}.toml")
        page = folder / f"{file}.html"
        page.write_text(
            player_of_scenario({one: apply_overrides(scenario, {"protocol": one}) for one in protocols}, SEED)
        )
        window.open(page)
        window.press("e")
        event, late_s = window.run("[carrycast.state().event, carrycast.state().time_s]")
        for name, asked in wanted.items():
            window.open(page, asked.format(event=event, late=late_s + LATER_S))
            for _ in range(3):
                window.run("new Promise(requestAnimationFrame)")
            taken = window.call("Page.captureScreenshot", format="png")["data"]
            (Path(__file__).parent / f"{name}.png").write_bytes(base64.b64decode(taken))
            print(name, window.run("carrycast.state().time_s"), "s")


def measure(window: Browser, page: Path) -> None:
    """How long it takes to open, and how many frames a second it draws when it plays.

    On a busy machine the clock says little; processor time is what a quiet one would need, at most.
    """
    size_mb = page.stat().st_size / 1e6
    cpu_s, begun = _cpu_s(window.process), time.monotonic()
    scripts_ms = window.open(page.resolve())
    window.run("new Promise(requestAnimationFrame)")
    opened_s, opened_cpu_s = time.monotonic() - begun, _cpu_s(window.process) - cpu_s
    script = f"""new Promise((done) => {{
      carrycast.play();
      const begun = performance.now();
      let frames = 0;
      const count = (now) => {{
        frames++;
        if (now - begun < {PLAYED_S * 1000}) requestAnimationFrame(count); else done([frames, now - begun]);
      }};
      requestAnimationFrame(count); }})"""
    cpu_s = _cpu_s(window.process)
    frames, lasted_ms = window.run(script)
    played_cpu_s = _cpu_s(window.process) - cpu_s
    print(f"{page}: {size_mb:.1f} MB")
    print(f"opens in {opened_s:.2f} s ({opened_cpu_s:.2f} s of processors, scripts {scripts_ms / 1000:.2f} s)")
    print(f"{frames / lasted_ms * 1000:.0f} frames a second, {played_cpu_s / frames * 1000:.1f} ms of processors each")


def _cpu_s(root: int) -> float:
    """What a process and all that it has started have used (Linux)."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(file.parent.name)
        parents[pid], used[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    total = 0
    for pid, ticks in used.items():
        at = pid
        while at in parents and at != root:
            at = parents[at]
        total += ticks if at == root else 0
    return total / os.sysconf("SC_CLK_TCK")


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
