"""Extension points: nine kinds of plug-ins, found by name among the built-in ones and in installed packages.

A package offers a plug-in by an entry point (https://packaging.python.org/specifications/entry-points/): the group of
the entry point is `carrycast.` and the kind, its name is the name that users type, and its value is the class.

    [project.entry-points."carrycast.radios"]
    lora = "my_package.lora:LoraRadio"

Entry points are read only for a name that is not built in, and for listings: reading them takes longer than starting
a command. A built-in name always means the built-in plug-in. A protocol or a router may also be a folder
`carrycast/protocols/<name>/` anywhere on the module search path; the folder's package offers the class as `PROTOCOL` (a
router as `ROUTER`).

The kinds are declared here by dotted names, so that this module imports none of the packages that own them.
"""

import difflib
import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from carrycast.errors import UserError

PROTOCOLS = "carrycast.protocols"
ROUTERS = "carrycast.routers"
CODE_SUFFIXES = (".py", ".toml")
"""The suffixes of the files that determine a package's behavior: sources, and maps that come with it."""


class PluginKind(NamedTuple):
    """One extension point."""

    name: str
    """The name in the plural, as in `radios`. The group of its entry points is then `carrycast.radios`."""
    noun: str
    """The word for one plug-in in error messages."""
    base: str
    """The abstract class, as `module:Class`."""
    builtin: tuple[str, ...] = ()
    """The tables of built-in plug-ins (name -> `module:Class`), each as `module:TABLE`."""
    folders: str = ""
    """An open package in which each folder is a plug-in of the folder's name."""
    attribute: str = ""
    """The name under which such a folder offers its class."""

    @property
    def group(self) -> str:
        """The group of its entry points."""
        return f"carrycast.{self.name}"


KINDS: Mapping[str, PluginKind] = {
    kind.name: kind
    for kind in (
        PluginKind(
            "protocols",
            "protocol",
            "carrycast.core.protocol.machine:Protocol",
            folders=PROTOCOLS,
            attribute="PROTOCOL",
        ),
        PluginKind("routers", "router", "carrycast.core.protocol.machine:Router", folders=ROUTERS, attribute="ROUTER"),
        PluginKind(
            "services",
            "application",
            "carrycast.core.protocol.application:Application",
            ("carrycast.services.built_in:APPLICATIONS",),
        ),
        PluginKind(
            "movement_models",
            "movement model",
            "carrycast.sim.mobility.model:MobilityModel",
            ("carrycast.sim.mobility.model:MODELS",),
        ),
        PluginKind("radios", "radio", "carrycast.sim.radio.radio:Radio", ("carrycast.sim.radio.radio:RADIOS",)),
        PluginKind(
            "link_adapters",
            "link adapter",
            "carrycast.node.link.adapter:LinkAdapter",
            ("carrycast.node.link.adapter:LINK_ADAPTERS",),
        ),
        PluginKind("gateways", "gateway", "carrycast.node.gateways:Gateway", ("carrycast.node.gateways:GATEWAYS",)),
        PluginKind(
            "metrics", "metric", "carrycast.trace.folds.fold:MergeableFold", ("carrycast.trace.folds.registry:FOLDS",)
        ),
        PluginKind(
            "file_formats",
            "file format",
            "carrycast.core.file_formats:FileFormat",
            ("carrycast.sim.mobility.model:FILE_FORMATS", "carrycast.analysis.fleets.formats:FILE_FORMATS"),
        ),
    )
}


class BrokenPluginError(UserError):
    """The plug-in exists and cannot be used."""


def find_plugin(kind: str, name: str) -> type[Any]:
    """Return the class of a plug-in. For an unknown name, the UserError lists the known ones."""
    what = KINDS[kind]
    if what.folders and name in folders_of(what.folders):
        found = getattr(_import(f"{what.folders}.{name}", what, name), what.attribute, None)
        return _check_class(found, what, name, f"the folder of {name!r}", f" as {what.attribute}")
    built_in = _list_built_in(what)
    if name in built_in:
        return _check_class(_load(built_in[name], what, name), what, name, built_in[name])
    entry_points = _entry_points(what.group)
    if name in entry_points:
        value = entry_points[name].value
        return _check_class(_load(value, what, name), what, name, f"the entry point {value}")
    raise unknown_plugin_error(what.noun, name, plugin_names(kind))


def unknown_plugin_error(noun: str, name: str, known: Sequence[str]) -> UserError:
    """The error for a name that no plug-in has, with a suggestion."""
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return UserError(f"there is no {noun} {name!r}: {hint}there are {', '.join(known) or 'none'}")


def plugin_names(kind: str) -> list[str]:
    """The names of all plug-ins of a kind, built in or installed, sorted. None of them is imported."""
    what = KINDS[kind]
    folders = folders_of(what.folders) if what.folders else []
    return sorted({*folders, *_list_built_in(what), *_entry_points(what.group)})


def plugin_source(kind: str, name: str) -> str:
    """The source of a plug-in: `built in`, or the distribution whose entry point it is."""
    what = KINDS[kind]
    if name in _list_built_in(what) or (what.folders and name in folders_of(what.folders)):
        return "built in"
    distribution = _entry_points(what.group)[name].dist
    return "an unnamed package" if distribution is None else f"{distribution.name} {distribution.version}"


def installed_packages() -> dict[str, list[metadata.EntryPoint]]:
    """The top-level packages that offer plug-ins by entry points, with those entry points."""
    found: dict[str, list[metadata.EntryPoint]] = {}
    for kind in KINDS.values():
        for entry_point in _entry_points(kind.group).values():
            found.setdefault(entry_point.module.split(".", maxsplit=1)[0], []).append(entry_point)
    return found


def package_files(package: str) -> dict[str, Path]:
    """The files of a package or module, by their paths from the root of the search path."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return {}
    below = Path(*package.split("."))
    if not spec.submodule_search_locations:
        return {} if spec.origin is None else {f"{below}.py": Path(spec.origin)}
    found: dict[str, Path] = {}
    for place in map(Path, spec.submodule_search_locations):
        for path in sorted(place.rglob("*")):
            if path.suffix in CODE_SUFFIXES:
                found.setdefault(str(below / path.relative_to(place)), path)
    return dict(sorted(found.items()))


def folders_of(package: str) -> list[str]:
    """The folders of an open package, anywhere on the search path. None of them is imported."""
    module = importlib.import_module(package)
    return sorted(found.name for found in pkgutil.iter_modules(module.__path__) if found.ispkg)


@functools.cache
def _entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    """The entry points of a group by name. If two packages offer the same name, the first on the search path wins."""
    found: dict[str, metadata.EntryPoint] = {}
    for entry_point in metadata.entry_points(group=group):
        found.setdefault(entry_point.name, entry_point)
    return found


def _list_built_in(kind: PluginKind) -> dict[str, str]:
    found: dict[str, str] = {}
    for place in kind.builtin:
        module, _, table = place.partition(":")
        found |= getattr(importlib.import_module(module), table)
    return found


def _load(value: str, kind: PluginKind, name: str) -> object:
    """Import the object that `module:Class` names."""
    module, _, path = value.partition(":")
    found: object = _import(module, kind, name)
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise BrokenPluginError(f"the {kind.noun} {name!r}: {module} has no {path}") from None
    return found


def _import(module: str, kind: PluginKind, name: str) -> object:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        text = _import_failure(error, module)
        raise BrokenPluginError(f"the {kind.noun} {name!r} does not import: {text}") from error


def _check_class(found: object, kind: PluginKind, name: str, where: str, how: str = "") -> type[Any]:
    module, _, base_name = kind.base.partition(":")
    base = getattr(importlib.import_module(module), base_name)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise BrokenPluginError(f"{where} must offer a subclass of {base_name}{how}")
    own = getattr(found, "name", name)
    if own != name:
        raise BrokenPluginError(f"the {kind.noun} {name!r} calls itself {own!r}; the two names must be one")
    return found


def _import_failure(error: BaseException, module: str) -> str:
    """Describe in one line the error of an import, and its place in the plug-in's package."""
    text = " ".join(str(error).split())
    package = module if module.startswith("carrycast.") else module.split(".", maxsplit=1)[0]
    place, trace = "", error.__traceback__
    while trace is not None:
        running = str(trace.tb_frame.f_globals.get("__name__", ""))
        if running == package or running.startswith(f"{package}."):
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        text, place = error.msg, f"{error.filename}:{error.lineno}"
    return f"{type(error).__name__}: {text}" + (f" ({place})" if place else "")
