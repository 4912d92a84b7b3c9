"""One folder per router: unicast over many hops, beneath a protocol. Open, as `carrycast.protocols` is."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
