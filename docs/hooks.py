"""What MkDocs does for carrycast besides its own work: adds pages from the code and from outside `docs/`, and rewrites
links to them. A link to a file of the repository leads to a copy of that file in the site. Diagrams become pictures.
Each version has a folder in the site, in the layout of mike, which the version switcher of Material reads."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

from pictures.sequences import BLOCK as DIAGRAM  # noqa: E402, I001
from pictures.sequences import Diagram  # noqa: E402
from reference import PAGES  # noqa: E402

from carrycast.version import VERSION  # noqa: E402

OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    **{
        str(path.relative_to(REPOSITORY)): f"{path.parent.parent.name}-{path.parent.name.replace('_', '-')}.md"
        for folder in ("protocols", "routers", "services")
        for path in sorted((REPOSITORY / "src" / "carrycast" / folder).glob("*/README.md"))
    },
    **{
        str(path.relative_to(REPOSITORY)): f"example-{path.parent.name}.md"
        for path in sorted((REPOSITORY / "examples").rglob("README.md"))
    },
}
"""Pages of the repository that are not in `docs/`, and their names in the site."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(?:carrycast|make|pip) ", re.MULTILINE)
"""A block without a language that has such a line is one of commands."""
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


DEVELOPMENT = "dev"
"""The folder and name of a site that describes changes that no release has yet."""
VERSIONS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>carrycast: versions of the documentation</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body {{ font: 1.1rem/1.6 sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }}</style></head>
<body><h1>carrycast: versions of the documentation</h1>
<ul>
{items}
</ul></body></html>
"""


def on_config(config: Any) -> None:
    """Name the version in the header and in the title of each page, and build into its folder."""
    changelog = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    version = DEVELOPMENT if "\n## Not released yet" in changelog else VERSION
    config.site_name = f"{config.site_name} {VERSION if version == VERSION else f'{VERSION} ({version})'}"
    config.site_dir = str(Path(config.site_dir) / version)


def on_page_context(context: Any, page: Page, config: Any, nav: Any) -> None:
    """Link each page to the list of versions: the switcher of Material needs a server, and this link does not."""
    up = "../" * (page.file.dest_uri.count("/") + 1)
    config.copyright = f'<a href="{up}index.html">All versions of this documentation</a>'


def on_post_build(config: Any) -> None:
    """List the versions that have been built, newest first."""
    built = Path(config.site_dir)
    names = sorted((path.parent.name for path in built.parent.glob("*/index.html")), key=_version_key, reverse=True)
    newest = next((name for name in names if name != DEVELOPMENT), None)
    entries = [{"version": name, "title": name, "aliases": ["latest"] * (name == newest)} for name in names]
    notes = {newest: " (newest release)"}
    items = [f'<li><a href="{name}/index.html">{name}</a>{notes.get(name, "")}</li>' for name in names]
    (built.parent / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", "utf-8")
    (built.parent / "index.html").write_text(VERSIONS.format(items="\n".join(items)), "utf-8")


def _version_key(name: str) -> tuple[bool, list[int]]:
    """The order of versions; the one in development is the newest."""
    return name == DEVELOPMENT, [int(number) for number in re.findall(r"\d+", name)]


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, the pages from outside `docs/`, and the files that pages link to."""
    for name, write in PAGES.items():
        files.append(File.generated(config, name, content=write()))
    for source, name in OUTSIDE.items():
        if name in files.src_uris:
            continue
        files.append(File.generated(config, name, content=(REPOSITORY / source).read_text("utf-8")))
    for file in list(files.documentation_pages()):
        for _, target, _ in LINK.findall(file.content_string):
            path = _repository_path(file.src_uri, target)
            if path is not None and _site_name(path) == f"files/{_name(path)}" not in files.src_uris and path.is_file():
                files.append(File.generated(config, f"files/{_name(path)}", content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Point links that leave `docs/` at the pages and files of the site, and mark blocks of commands."""

    def point(found: re.Match[str]) -> str:
        path = _repository_path(page.file.src_uri, found[2])
        if path is None:
            return found[0]
        return f"{found[1]}{os.path.relpath(_site_name(path), Path(page.file.src_uri).parent)}{found[3]}"

    def mark(found: re.Match[str]) -> str:
        language = "sh" if not found[1] and COMMAND.search(found[2]) else found[1]
        return f"```{language}\n{found[2]}```"

    # Readers copy commands: they are highlighted as such, and wrap instead of leaving the box.
    marked = BLOCK.sub(mark, LINK.sub(point, markdown))
    return DIAGRAM.sub(lambda found: _picture(Diagram(found[1]), page), marked)


def _picture(diagram: Diagram, page: Page) -> str:
    """The drawn diagram, and its source as text."""
    if not diagram.is_current:
        raise PluginError(f"'{diagram.title}' has changed since it was drawn: see docs/pictures/sequences.py")
    file = os.path.relpath(_site_name(diagram.file), Path(page.file.src_uri).parent)
    image = f"![{diagram.title}. {diagram.description}]({file})"
    lines = "".join(f"    {line}\n" for line in ["```text", *diagram.steps, "```"])
    return f'[{image}]({file})\n\n??? note "This diagram as text"\n\n{lines}'


def _site_name(path: Path) -> str:
    """Where a file or folder of the repository is in the site."""
    source = _name(path / "README.md" if path.is_dir() else path)
    if source in OUTSIDE:
        return OUTSIDE[source]
    return source.removeprefix("docs/") if source.startswith("docs/") else f"files/{source}"


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def _repository_path(page: str, target: str) -> Path | None:
    """The file that a link of a page leads to, if the page or the file is not in `docs/`; else None."""
    source = next((source for source, name in OUTSIDE.items() if name == page != "index.md"), f"docs/{page}")
    path = Path(os.path.normpath(REPOSITORY / Path(source).parent / target))
    stays = source.startswith("docs/") and path.is_relative_to(REPOSITORY / "docs")
    if stays or not path.is_relative_to(REPOSITORY) or not path.exists():
        return None
    return path
