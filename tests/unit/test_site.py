"""`make docs`: every page is in the site, every link leads somewhere, and nothing is fetched from another host."""

import html
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

REPOSITORY = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"carrycast_docs_{name}", REPOSITORY / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Strict: a dead link, a missing heading or a page outside the navigation ends the build.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (version,) = [path.parent for path in folder.glob("*/index.html")]
    return version


def test_every_page_is_in_the_site(built: Path) -> None:
    for source in (REPOSITORY / "docs").rglob("*.md"):
        assert (built / source.relative_to(REPOSITORY / "docs").with_suffix(".html")).is_file()
    for source in (REPOSITORY / "src").rglob("README.md"):
        name = f"{source.parent.parent.name}-{source.parent.name.replace('_', '-')}.html"
        assert (built / name).is_file()


def test_pages_need_no_other_host_and_files_that_they_link_to_are_there(built: Path) -> None:
    for page in built.rglob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*?(?:src|href)="((?:https?:)?//[^"]+)"', text)
        assert not [url for url in loaded if "canonical" not in url], page
        for target in re.findall(r'(?:src|href)="([^"#:?]+)', text):
            if page.name != "404.html":
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_every_diagram_is_a_picture_with_an_alternative_and_its_text(built: Path) -> None:
    sequences = load("pictures/sequences")
    page = (built / "architecture" / "call-sequences.html").read_text("utf-8")
    diagrams = list(sequences.diagrams())
    assert len(diagrams) >= 6
    assert "language-mermaid" not in page
    for diagram in diagrams:
        (image,) = re.findall(rf'<img [^>]*src="../pictures/{diagram.file.name}"[^>]*>', page)
        assert f'alt="{diagram.title}. {diagram.description}"' in html.unescape(image)
    assert page.count("This diagram as text") == len(diagrams)


def test_a_diagram_whose_source_has_changed_is_out_of_date() -> None:
    sequences = load("pictures/sequences")
    for diagram in sequences.diagrams():
        assert diagram.is_current, f"{diagram.title}: see docs/pictures/sequences.py"
        assert not sequences.Diagram(diagram.source + "    Note over A: more\n").is_current
    with pytest.raises(ValueError, match="needs a line 'accTitle"):
        _ = sequences.Diagram("sequenceDiagram\n    A->>B: c\n").file


def test_each_version_has_a_folder_and_the_list_names_all(tmp_path: Path) -> None:
    hooks = load("hooks")
    for name in ("0.9.0", "dev", "0.10.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    hooks.on_post_build(SimpleNamespace(site_dir=str(tmp_path / "dev")))
    listed = json.loads((tmp_path / "versions.json").read_text("utf-8"))
    assert [(one["version"], one["aliases"]) for one in listed] == [("dev", []), ("0.10.0", ["latest"]), ("0.9.0", [])]
    links = re.findall(r'href="([^"]+)"', (tmp_path / "index.html").read_text("utf-8"))
    assert links == ["dev/index.html", "0.10.0/index.html", "0.9.0/index.html"]


def test_the_search_knows_commands_settings_and_the_python_api(built: Path) -> None:
    entries = json.loads((built / "search" / "search_index.json").read_text("utf-8"))["docs"]
    places = {entry["location"] for entry in entries}
    assert {
        "reference-cli.html#carrycast-compare",
        "reference-python.html#carrycast.api.functions.simulate",
        "reference-protocols.html#protocol-drift",
    } <= places


def test_the_reference_lists_every_command_and_every_key() -> None:
    from carrycast.cli import parser
    from carrycast.node.config_file import NodeFile
    from carrycast.sim.scenario import Scenario

    reference = load("reference")
    commands = reference.cli_page()
    assert all(f"## carrycast {name}" in commands for name in parser().subcommands)
    for text, kind, hidden in (
        (reference.scenario_page(), Scenario, {"base"}),
        (reference.configuration_page(), NodeFile, set()),
    ):
        assert all(f"| `{key}` |" in text for key in set(kind.__struct_fields__) - hidden)


def test_every_key_of_a_node_has_a_meaning() -> None:
    rows = [line for line in load("reference").configuration_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_reference_lists_every_key_of_the_mqtt_gateway() -> None:
    from carrycast.node.gateways.mqtt.config import AnonymousSection, MqttSection, UserSection

    page = load("reference").configuration_page()
    for heading, kind in (
        ("[mqtt]", MqttSection),
        ("[mqtt.users.NAME]", UserSection),
        ("[mqtt.anonymous]", AnonymousSection),
    ):
        [section] = re.findall(rf"^## `{re.escape(heading)}`$(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        assert all(f"| `{key}` |" in section for key in kind.__struct_fields__)


def test_a_long_sentence_is_found_and_code_tables_and_links_are_not_prose() -> None:
    check = load("check")
    words = "word " * 31
    assert [line for line, _ in check.long_sentences(f"# Title\n\nShort one.\n\n{words.strip()}.\n")] == [5]
    assert not list(check.long_sentences(f"```\n{words}\n```\n\n| {words} |\n\n[a](b.md) `{words}`.\n"))
    assert not list(check.long_sentences("\n".join(f"- {'word ' * 20}" for _ in range(3))))
