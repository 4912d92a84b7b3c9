"""driftcast: publish/subscribe, by content, for networks that move."""

from pkgutil import extend_path

# Open, so that a folder `driftcast/dissemination/<name>/` elsewhere on the module search path is found too.
__path__ = extend_path(__path__, __name__)

from driftcast.api import Filter, connect, simulate

__all__ = ["Filter", "__version__", "connect", "simulate"]

__version__ = "0.1.0"
