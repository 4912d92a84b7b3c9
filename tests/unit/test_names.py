"""Names: one name for one thing, and the words of the field (docs/glossary.md)."""

import ast
import importlib.util
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "carrycast"
# A protocol, router or service repeats the names of its messages: they are the words of its own paper or RFC.
MESSAGE_FOLDERS = ("protocols", "routers", "services")


def load_check() -> ModuleType:
    """`docs/check.py`, which `make docs` runs, has the list of banned words."""
    spec = importlib.util.spec_from_file_location("carrycast_docs_check", ROOT / "docs" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = load_check()


def is_test(path: Path) -> bool:
    return path.name.startswith("test_") or path.name == "conftest.py" or "tests" in path.relative_to(ROOT).parts


def modules() -> dict[Path, ast.Module]:
    """The sources, by their place in the package; tests do not count."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if not is_test(path):
            found[place] = ast.parse(path.read_text("utf-8"))
    return found


def is_message(place: Path, cls: ast.ClassDef) -> bool:
    tagged = any(keyword.arg == "tag" for keyword in cls.keywords)
    return place.parts[0] in MESSAGE_FOLDERS and tagged


def test_public_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for place, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_message(place, node):
                places[node.name].append(str(place))
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared, "\n".join(f"{name}: {', '.join(where)}" for name, where in sorted(shared.items()))


# Keys of configurations and names of the field that have such a word in them.
ALLOWED_NAMES = frozenset({"QuotaSettings"})
# A field of a message between nodes and clients keeps its name: it is part of the format.
WIRE_NAMES = re.compile(r'"sightings"')
PROSE = ("docs", "README.md", "CONTRIBUTING.md", "src")


def components(name: str) -> set[str]:
    """The words of an identifier, in lower case."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_the_glossary_bans_words() -> None:
    words = CHECK.banned_words()
    assert len(words) > 30
    assert {"waist", "anew", "landlord"} <= set(words)


def test_no_module_class_or_function_has_a_banned_name() -> None:
    banned = {word for word in CHECK.banned_words() if " " not in word}
    found = []
    for place, tree in modules().items():
        names = [place.stem]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.append(node.name)
        found += [f"{place}: {name}" for name in names if name not in ALLOWED_NAMES and components(name) & banned]
    assert not found, "\n".join(found)


def test_no_page_docstring_or_help_text_has_a_banned_word() -> None:
    pattern = CHECK.banned_in_prose()
    listed = subprocess.run(["git", "ls-files", *PROSE], cwd=ROOT, capture_output=True, text=True, check=True)
    found = []
    for name in listed.stdout.split("\n"):
        path = ROOT / name
        if not name.endswith((".md", ".py", ".toml", ".txt")) or name == "docs/glossary.md" or not path.is_file():
            continue
        if is_test(path):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if pattern.search(line) and not WIRE_NAMES.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)
