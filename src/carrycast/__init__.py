"""carrycast: publish/subscribe, by content, for networks that move."""

from pkgutil import extend_path
from typing import TYPE_CHECKING

from carrycast.version import VERSION

if TYPE_CHECKING:
    from carrycast.api import Filter, connect, connect_async, simulate

# Open, so that a folder `carrycast/protocols/<name>/` elsewhere on the module search path is found too.
__path__ = extend_path(__path__, __name__)

__version__ = VERSION

__all__ = ["Filter", "__version__", "connect", "connect_async", "simulate"]


def __getattr__(name: str) -> object:
    """The public functions, imported when first used: a worker process of a small device needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'carrycast' has no attribute {name!r}")
    from carrycast import api

    return getattr(api, name)
