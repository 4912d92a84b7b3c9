"""Each package's `__init__` is its interface: other packages import from there. No imports go in a circle."""

import ast
import importlib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.unit.test_architecture import modules

# Folders that group packages; the packages below them are what others import from.
GROUPS = frozenset({"core", "sim", "node", "analysis", "protocols", "routers", "services"})


def packages() -> dict[str, Path]:
    return {name: path for name, path in modules().items() if path.name == "__init__.py"}


PACKAGES = packages()
MODULES = modules()


def package_of(module: str) -> str:
    """The package behind whose interface a module stands."""
    parts = module.split(".")
    below = ".".join(parts[:2])
    # The single modules of the core, such as `core.settings`, are small packages in one file.
    return below if parts[0] == "core" or (parts[0] in GROUPS and below in PACKAGES) else parts[0]


def interface_for(module: str, target: str) -> str:
    """From where a module may import what another module defines."""
    here, there = package_of(module), package_of(target)
    within = here == there or (there in GROUPS and module.split(".", maxsplit=1)[0] == there)
    return target if within else there


def own_imports(tree: ast.AST) -> Iterator[ast.ImportFrom | ast.Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def imports_at_start(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a module imports while it is itself imported, as (module, name), below `carrycast`."""

    def walk(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith("carrycast."):
                for alias in node.names:
                    yield node.module.removeprefix("carrycast").removeprefix("."), alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith("carrycast."):
                        yield alias.name.removeprefix("carrycast."), ""
            elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
                yield from walk([*node.body, *node.orelse])
            elif isinstance(node, ast.Try):
                yield from walk([*node.body, *node.orelse, *node.finalbody])
            elif isinstance(node, ast.ClassDef | ast.With):
                yield from walk(node.body)

    return walk(tree.body)


def lazy_table(tree: ast.Module) -> dict[str, str] | None:
    """The names that a package offers lazily, with the module of each; None if it imports what it offers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_exports":
            table: dict[str, str] = ast.literal_eval(node.args[1])
            return {name: module for module, names in table.items() for name in names.split()}
    return None


TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def import_violations(module: str, tree: ast.Module) -> Iterator[str]:
    for node in own_imports(tree):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            targets = [name for name in names if name.startswith("carrycast.")]
        elif node.level:
            yield f"carrycast.{module}:{node.lineno}: a relative import; use the full name"
            continue
        elif node.module and f"{node.module}.".startswith("carrycast."):
            inner = [f"{node.module}.{name}" for name in names]
            targets = [full if full.removeprefix("carrycast.") in MODULES else node.module for full in inner]
        else:
            continue
        for target in targets:
            there = target.removeprefix("carrycast").removeprefix(".")
            interface = interface_for(module, there)
            if there != interface:
                yield f"carrycast.{module}:{node.lineno}: import from carrycast.{interface}, not from {target}"


def test_other_packages_import_only_from_the_interface() -> None:
    found = [complaint for module, tree in TREES.items() for complaint in import_violations(module, tree)]
    assert not found, "\n".join(sorted(set(found)))


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("sim.engine.kernel", "from carrycast.core.model.event import Event", "import from carrycast.core.model, not"),
        ("sim.engine.kernel", "from carrycast.trace import rows", "import from carrycast.trace, not"),
        ("node.node", "def f():\n    import carrycast.node.link.udp", ":2: import from carrycast.node.link, not"),
        ("node.node", "from .link import udp", "a relative import"),
    ],
)
def test_the_rule_sees(module: str, source: str, complaint: str) -> None:
    assert any(complaint in found for found in import_violations(module, ast.parse(source)))


def test_modules_of_a_package_import_each_other_by_their_full_names() -> None:
    tree = ast.parse("from carrycast.sim.engine.kernel import Kernel\nfrom carrycast.core.model import Event")
    assert not list(import_violations("sim.engine.simulation", tree))


def test_lazy_exports_are_what_type_checkers_see() -> None:
    checked = 0
    for package, path in PACKAGES.items():
        table = lazy_table(TREES[package])
        if table is None:
            continue
        checked += 1
        seen = {
            alias.name: node.module.removeprefix(f"carrycast.{package}.")
            for node in ast.walk(TREES[package])
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"carrycast.{package}.")
            for alias in node.names
        }
        if package:
            assert table == seen, path
        offered = importlib.import_module(f"carrycast.{package}".rstrip("."))
        assert set(table) <= set(dir(offered))
        for name in table:
            assert getattr(offered, name) is not None
    assert checked > 5


def test_no_export_hides_a_module_of_its_package() -> None:
    for package, path in PACKAGES.items():
        inside = {name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == package and name}
        offered = set(lazy_table(TREES[package]) or {}) | {
            name for module, name in imports_at_start(TREES[package]) if module.startswith(f"{package}.")
        }
        assert not (offered - {""}) & inside, path


def defining_module(module: str, name: str) -> str | None:
    """The module that runs when `from carrycast.<module> import <name>` is executed."""
    if f"{module}.{name}".lstrip(".") in MODULES:
        return f"{module}.{name}".lstrip(".")
    table = lazy_table(TREES[module]) if module in PACKAGES else None
    if table and name in table:
        return f"{module}.{table[name]}".lstrip(".")
    return module if module in MODULES else None


def test_no_module_needs_itself_to_be_imported() -> None:
    graph: dict[str, set[str]] = {}
    for module, tree in TREES.items():
        targets = {defining_module(origin, name) for origin, name in imports_at_start(tree)}
        graph[module] = {target for target in targets if target is not None and target != module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(f"carrycast.{module}" for module in error.args[1]))
