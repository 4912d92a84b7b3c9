"""Lazy exports: a package imports a module when one of the module's names is first used (PEP 562).

A package's `__init__` can then be its whole interface, while a program that uses one name imports one module.
"""

import importlib
from collections.abc import Callable, Mapping


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package. `modules` maps each module to its names, between blanks.

    The package also imports the same names under `if TYPE_CHECKING`, for type checkers and editors.
    """
    origin = {name: module for module, names in modules.items() for name in names.split()}

    def find_export(name: str) -> object:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # Not cached in the package, so that a name that a test or debugger replaces in its module is replaced here too.
        found: object = getattr(importlib.import_module(f"{package}.{origin[name]}"), name)
        return found

    return find_export, lambda: sorted(origin)
