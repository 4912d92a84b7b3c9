"""Draws the sequence diagrams of the pages: `python docs/pictures/sequences.py FOLDER` writes `sequence-*.svg` beside
this file, in Chromium, by the Mermaid of a folder in which `npm install mermaid@11.17.2` has been run.

The site shows these files, so that readers need neither scripts nor another host. Each file has the hash of the source
that it was drawn from; `make docs` refuses one that is out of date. In Mermaid a semicolon ends a message.
"""

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
DOCS = HERE.parent
BLOCK = re.compile(r"^```mermaid\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
SETTINGS = """{
    startOnLoad: false, deterministicIds: true, deterministicIDSeed: "carrycast", theme: "base",
    fontFamily: "Inter, Helvetica Neue, Arial, sans-serif",
    themeVariables: {
        primaryColor: "#eef3f7", primaryBorderColor: "#8a99a8", primaryTextColor: "#1c2733", lineColor: "#1c2733",
        actorLineColor: "#c9d3dc",
        noteBkgColor: "#d7e6f2", noteBorderColor: "#8a99a8", noteTextColor: "#1c2733"
    },
    sequence: {
        useMaxWidth: false, mirrorActors: false, wrap: true, width: 205, actorMargin: 36, wrapPadding: 1,
        messageFontSize: 14, noteFontSize: 13, actorFontSize: 14
    }
}"""
PAGE = """<!doctype html><meta charset="utf-8"><body><script src="{mermaid}"></script>
<script>mermaid.initialize({settings}); window.carrycast = {{ready: 0}}</script>"""
DRAW = """mermaid.render({name}, {source}).then(({{svg}}) => {{
    const drawn = new DOMParser().parseFromString(svg, "text/html").querySelector("svg")
    return new XMLSerializer().serializeToString(drawn)
}})"""


class Diagram(NamedTuple):
    """A sequence diagram of a page."""

    source: str

    @property
    def title(self) -> str:
        return self._line("accTitle")

    @property
    def description(self) -> str:
        """What readers learn who do not see it."""
        return self._line("accDescr")

    @property
    def steps(self) -> list[str]:
        """The participants, messages and notes, one line each."""
        lines = [line.removeprefix("    ") for line in self.source.splitlines()[1:]]
        return [line for line in lines if not line.startswith(("accTitle:", "accDescr:"))]

    @property
    def file(self) -> Path:
        return HERE / f"sequence-{re.sub(r'[^a-z0-9]+', '-', self.title.lower())}.svg"

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{SETTINGS}{self.source}".encode()).hexdigest()

    @property
    def is_current(self) -> bool:
        """Whether the committed file was drawn from this source."""
        return self.file.is_file() and f"<!-- {self.fingerprint} -->" in self.file.read_text("utf-8")

    def _line(self, key: str) -> str:
        found = re.search(rf"^ *{key}: (.+)$", self.source, re.MULTILINE)
        if found is None:
            raise ValueError(f"a Mermaid diagram needs a line '{key}: ...': {self.source.splitlines()[1].strip()}")
        return found[1].strip()


def diagrams() -> Iterator[Diagram]:
    """Those of all pages of `docs/`."""
    for page in sorted(DOCS.rglob("*.md")):
        yield from map(Diagram, BLOCK.findall(page.read_text("utf-8")))


def main(folder: Path) -> None:
    """Draw the diagrams whose files are out of date."""
    sys.path.insert(0, str(DOCS.parent))
    from tests.player.browser import Browser

    mermaid = (folder / "node_modules/mermaid/dist/mermaid.min.js").resolve(strict=True)
    with tempfile.TemporaryDirectory() as place, Browser(Path(place) / "profile") as window:
        page = Path(place) / "page.html"
        page.write_text(PAGE.format(mermaid=mermaid.as_uri(), settings=SETTINGS), "utf-8")
        window.open(page)
        for diagram in diagrams():
            if not diagram.is_current:
                svg = window.run(DRAW.format(name=json.dumps(diagram.file.stem), source=json.dumps(diagram.source)))
                diagram.file.write_text(f"{svg}\n<!-- {diagram.fingerprint} -->\n", "utf-8")
                print(diagram.file.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
