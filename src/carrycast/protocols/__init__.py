"""One folder per protocol. The package is open: folders of the same path elsewhere on the search path join it."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
