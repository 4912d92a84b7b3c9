"""What there is by name: the folders of an open package, found without importing any of them."""

import importlib
import pkgutil

PROTOCOLS = "carrycast.protocols"
ROUTERS = "carrycast.routers"


def folders_of(package: str) -> list[str]:
    """The folders of a package, wherever on the search path they are."""
    module = importlib.import_module(package)
    return sorted(found.name for found in pkgutil.iter_modules(module.__path__) if found.ispkg)
