"""Builds the documentation as a site of plain HTML files with a search that needs no server: `make docs`.

Every page of the repository is in it, with what its links lead to. A link that leads nowhere ends the build.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from carrycast.analysis.reports.css import CSS

REPOSITORY = Path(__file__).parents[1]
SITE = REPOSITORY / "build" / "site"
FIRST = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
GROUPS = {"docs": "Guide", "src/carrycast/protocols": "Protocols", "src/carrycast/routers": "Routers"}
LAYOUT = """
body { display: flex; } main { flex: 1; min-width: 0; margin: 0; max-width: 60rem; padding: 2rem; }
aside { width: 17rem; flex: none; height: 100vh; position: sticky; top: 0; overflow-y: auto; padding: 1.5rem 1rem;
  border-right: 1px solid var(--line); font: 0.85rem/1.5 "Inter", "Helvetica Neue", Arial, sans-serif; }
aside a { display: block; padding: 0.1rem 0; } aside b { display: block; margin-top: 1rem; }
aside input { width: 100%; padding: 0.4rem; } aside a[aria-current] { color: var(--ink); font-weight: 600; }
.found small { margin-bottom: 0.5rem; } main img { max-width: 100%; background: #fff; } main table { width: auto; }
main pre { border: 1px solid var(--line); border-radius: 6px; } td code, p code, li code { white-space: normal; }
@media (max-width: 50rem) { body { display: block; } aside { width: auto; height: auto; position: static;
  border-right: 0; } aside nav { columns: 2; } main { padding: 1rem; }
  main table { display: block; overflow-x: auto; } }
"""
SEARCH = """
const box = document.querySelector("aside input"), list = document.querySelector(".found");
const root = document.body.dataset.root;
box.addEventListener("input", () => {
  // A word is found where one begins with it: "late" in "later" and not in "related".
  const words = box.value.split(/\\s+/).filter(Boolean)
    .map((word) => new RegExp("(?<!\\\\w)" + word.replace(/[^\\w]/g, "\\\\$&"), "i"));
  const hits = [];
  for (const [url, title, text] of words.length ? PARTS : []) {
    if (!words.every((word) => word.test(title) || word.test(text))) continue;
    hits.push([words.filter((word) => word.test(title)).length, url, title, text, text.search(words[0])]);
  }
  hits.sort((a, b) => b[0] - a[0]);
  list.replaceChildren(...hits.slice(0, 20).map(([, url, title, text, at]) => {
    const link = document.createElement("a"), more = document.createElement("small");
    link.href = root + url;
    link.textContent = title;
    more.textContent = text.slice(Math.max(0, at - 40), Math.max(0, at - 40) + 120);
    link.append(more);
    return link;
  }));
});
box.value = new URLSearchParams(location.search).get("q") || "";
box.dispatchEvent(new Event("input"));
"""


@dataclass
class Page:
    """A Markdown file of the repository."""

    path: Path
    """From the root of the repository."""
    tokens: Sequence[Token]

    @property
    def url(self) -> str:
        """Where it is in the site."""
        return "index.html" if self.path == Path("README.md") else str(self.path.with_suffix(".html"))

    @property
    def title(self) -> str:
        """Its first heading."""
        return next((part.title for part in parts(self)), self.path.stem)


@dataclass
class Part:
    """What stands below one heading."""

    title: str
    anchor: str
    text: str


def parts(page: Page) -> list[Part]:
    """The page from heading to heading, for the search."""
    found: list[Part] = []
    for place, token in enumerate(page.tokens):
        if token.type == "heading_open":
            found.append(Part(plain(page.tokens[place + 1]), str(token.attrGet("id")), ""))
        elif found and token.type in ("inline", "fence") and page.tokens[place - 1].type != "heading_open":
            found[-1].text += f" {plain(token)}"
    return found


def plain(token: Token) -> str:
    """The text of a token, without its marks."""
    if token.children is None:
        return token.content
    return "".join(" " if child.type == "softbreak" else child.content for child in token.children)


def read_pages(root: Path = REPOSITORY) -> dict[Path, Page]:
    """Every page of the repository, by its path."""
    parser = MarkdownIt("commonmark").enable("table")
    paths = [
        *(root / name for name in FIRST),
        *sorted((root / "docs").rglob("*.md")),
        *sorted((root / "src").rglob("*.md")),
        *sorted((root / "examples").rglob("*.md")),
    ]
    pages = {}
    for path in paths:
        page = Page(path.relative_to(root), parser.parse(path.read_text("utf-8")))
        _name_headings(page)
        pages[page.path] = page
    return pages


def _name_headings(page: Page) -> None:
    """Anchors as everybody makes them: words in lower case with hyphens, numbered if one is there twice."""
    taken: dict[str, int] = {}
    for place, token in enumerate(page.tokens):
        if token.type == "heading_open":
            words = re.sub(r"[^\w\- ]", "", plain(page.tokens[place + 1]).lower()).replace(" ", "-")
            taken[words] = taken.get(words, -1) + 1
            token.attrSet("id", f"{words}-{taken[words]}" if taken[words] else words)


def links(page: Page) -> Iterator[tuple[Token, str]]:
    """The tokens of a page that lead elsewhere, and the attribute that says where."""
    for token in page.tokens:
        for child in token.children or ():
            if child.type in ("link_open", "image"):
                yield child, "href" if child.type == "link_open" else "src"


def resolve(pages: dict[Path, Page], root: Path = REPOSITORY) -> tuple[list[Path], list[str]]:
    """Point every link at its place in the site: the files that are needed besides pages, and what is wrong."""
    files: dict[Path, None] = {}
    wrong = []
    for page in pages.values():
        for token, attribute in links(page):
            target, hash_sign, anchor = str(token.attrGet(attribute)).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            path = Path(os.path.normpath(page.path.parent / target)) if target else page.path
            path = path / "README.md" if (root / path).is_dir() else path
            other = pages.get(path)
            if other is None and not (root / path).is_file():
                wrong.append(f"{page.path}: {target} leads nowhere")
            elif other is None:
                files[path] = None
            elif anchor and anchor not in [part.anchor for part in parts(other)]:
                wrong.append(f"{page.path}: {target}#{anchor}: there is no such heading")
            url = str(path) if other is None else other.url
            token.attrSet(attribute, os.path.relpath(url, Path(page.url).parent) + hash_sign + anchor)
    return list(files), wrong


def build(out: Path = SITE, root: Path = REPOSITORY) -> list[str]:
    """Write the site; what is wrong with its links."""
    pages = read_pages(root)
    files, wrong = resolve(pages, root)
    shutil.rmtree(out, ignore_errors=True)
    for path in files:
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, out / path)
    renderer = MarkdownIt("commonmark").enable("table")
    for page in pages.values():
        target = out / page.url
        target.parent.mkdir(parents=True, exist_ok=True)
        body = renderer.renderer.render(page.tokens, renderer.options, {})
        target.write_text(_document(page, pages.values(), body), "utf-8")
    index = [
        [f"{page.url}#{part.anchor}", f"{page.title}: {part.title}" if place else part.title, part.text.strip()]
        for page in pages.values()
        for place, part in enumerate(parts(page))
    ]
    (out / "search.js").write_text(f"const PARTS = {json.dumps(index, ensure_ascii=False)};\n{SEARCH}", "utf-8")
    return wrong


def _document(page: Page, pages: Collection[Page], body: str) -> str:
    depth = "../" * (len(Path(page.url).parts) - 1)
    title = escape(page.title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{CSS}{LAYOUT}</style>\n</head>\n"
        f'<body data-root="{depth}">\n<aside><input type="search" placeholder="Search" aria-label="Search">'
        f'<div class="found"></div><nav>{_menu(page, pages, depth)}</nav></aside>\n<main>\n{body}</main>\n'
        f'<script src="{depth}search.js"></script>\n</body>\n</html>\n'
    )


def _menu(page: Page, pages: Collection[Page], depth: str) -> str:
    groups: dict[str, list[str]] = {}
    for other in pages:
        group = next((name for folder, name in GROUPS.items() if other.path.is_relative_to(folder)), "")
        group = group or ("Start" if str(other.path) in FIRST else "More")
        here = ' aria-current="page"' if other is page else ""
        groups.setdefault(group, []).append(f'<a href="{depth}{other.url}"{here}>{escape(other.title)}</a>')
    return "".join(f"<b>{name}</b>{''.join(entries)}" for name, entries in groups.items())


if __name__ == "__main__":
    problems = build()
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{SITE / 'index.html'}: open it in a browser")
    sys.exit(1 if problems else 0)
