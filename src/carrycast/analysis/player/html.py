"""The page: one HTML file that contains its style, scripts and data."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import msgspec

PARTS = Path(__file__).parent / "page"
SCRIPTS = ("data.js", "moment.js", "draw.js", "controls.js")
"""The scripts in the order of their dependencies."""
LIVE = "live.js"


def live_page(title: str) -> str:
    """The page of a live network. It requests new rows at its own address, under `story`."""
    nothing: dict[str, object] = {"columns": {}, "roads": [], "runs": [], "names": [], "nodes": 0, "duration_s": 1.0}
    unknown = {"area_m": None, "squares": None, "moves": False}
    return page(title, {"title": title, "live": True, **nothing, **unknown}, "", (*SCRIPTS[:-1], LIVE, SCRIPTS[-1]))


def page(title: str, header: Mapping[str, object], columns: str, parts: Sequence[str] = SCRIPTS) -> str:
    """The complete HTML file."""
    encoded = msgspec.json.encode(header).decode().replace("<", "\\u003c")
    scripts = "\n".join(_read_part(name) for name in parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · carrycast</title>\n<style>\n{_read_part('style.css')}</style>\n</head>\n<body>\n"
        f'{_read_part("body.html")}<script type="application/json" id="header">{encoded}</script>\n'
        f'<script type="text/plain" id="columns">{columns}</script>\n'
        f'<script>\n"use strict";\n(() => {{\n{scripts}\n}})();\n</script>\n</body>\n</html>\n'
    )


def _read_part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")
