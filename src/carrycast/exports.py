"""Lazy exports: a package offers names of its modules and imports a module when one of its names is first used.

So a package's `__init__` can be its whole interface, and a program that uses one name pays for one module (PEP 562).
"""

import importlib
from collections.abc import Callable, Mapping


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that offers, for each of its modules, these names (between blanks).

    A static import of the same names under `if TYPE_CHECKING` tells type checkers and editors of them.
    """
    origin = {name: module for module, names in modules.items() for name in names.split()}

    def find_export(name: str) -> object:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # Not kept in the package: what replaces the name in its module, as a debugger or a test does, is seen here too.
        found: object = getattr(importlib.import_module(f"{package}.{origin[name]}"), name)
        return found

    return find_export, lambda: sorted(origin)
