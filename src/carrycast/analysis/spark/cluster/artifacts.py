"""The artifacts that the driver sends to executors: carrycast, the user's code, and the files that scenarios name.

Executors need a Python with the packages of a plain installation. They need neither carrycast nor a shared folder.
"""

import hashlib
import importlib
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING

from carrycast.analysis.spark.code import PACKAGE, is_test
from carrycast.core.plugins import installed_packages, package_files
from carrycast.errors import UserError
from carrycast.sim.mobility import FACTS_FILE, LEGS_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = ("*.py", "*.toml")
"""Maps that come with carrycast are TOML files of the package."""
# A fixed time for the entries of an archive, so that equal contents give equal archives.
_DATE = (1980, 1, 1, 0, 0, 0)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_DIGEST_BYTES = 8


def own_import_paths() -> list[str]:
    """Return the folders outside the installation from which this process imports, such as a source tree."""
    return [
        str(path)
        for entry in sys.path
        if (path := Path(entry or ".").resolve()).exists() and _is_outside_installation(path)
    ]


def send_code(spark: "SparkSession", folder: Path) -> None:
    """Send code to the executors: carrycast, installed plug-ins, and each module that this process has imported from
    outside its installation. An archive that has been sent is not sent again."""
    found = {**_own_modules(), **_installed_plugins(), **_package_files()}
    hashed = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name, content in sorted(found.items()):
        hashed.update(f"{name}\0{len(content)}\0".encode() + content)
    archive = folder / f"carrycast-{hashed.hexdigest()}.zip"
    if not archive.exists():
        _write_archive(archive, found)
        spark.sparkContext.addPyFile(str(archive))


def send_files(spark: "SparkSession", folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Send files to the executors; return the name of each for `SparkFiles.get`, by its path here. A missing file is
    not sent; the run that needs it reports the error."""
    names: dict[str, str] = {}
    for path in paths:
        if not path.is_file():
            continue
        if path.name == FACTS_FILE:
            names[str(path)] = f"{_send_fleet(spark, folder, path.parent)}/{FACTS_FILE}"
            continue
        copy = folder / f"{_digest([path])}-{_UNSAFE.sub('_', path.name)[-60:]}"
        if not copy.exists():
            _link(path, copy)
            spark.sparkContext.addFile(str(copy))
        names[str(path)] = copy.name
    return names


def _send_fleet(spark: "SparkSession", folder: Path, fleet: Path) -> str:
    """Send a fleet, which is a file of facts and a folder of legs beside it, as an archive that Spark unpacks."""
    files = [fleet / FACTS_FILE, *sorted((fleet / LEGS_FOLDER).glob("*.parquet"))]
    archive = folder / f"fleet-{_digest(files)}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w") as made:
            for path in files:
                made.write(path, path.relative_to(fleet))
        spark.sparkContext.addArchive(str(archive))
    return archive.name


def _digest(paths: Iterable[Path]) -> str:
    hashed = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for path in paths:
        try:
            with path.open("rb") as file:
                hashed.update(hashlib.file_digest(file, "blake2b").digest())
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    return hashed.hexdigest()


def _link(path: Path, copy: Path) -> None:
    """Make a hard link, or a copy. Spark uses the file name, after following symbolic links, as the artifact's name."""
    try:
        os.link(path.resolve(), copy)
    except OSError:
        copy.write_bytes(path.read_bytes())


def _package_files() -> dict[str, bytes]:
    """Return the files of carrycast in all places of its search path; of equal names, the first file."""
    found: dict[str, bytes] = {}
    for place in map(Path, importlib.import_module(PACKAGE).__path__):
        for pattern in CODE:
            for path in place.rglob(pattern):
                name = PurePosixPath(PACKAGE, *path.relative_to(place).parts)
                if not is_test(Path(name)):
                    found.setdefault(str(name), path.read_bytes())
    return found


def _installed_plugins() -> dict[str, bytes]:
    """Return the packages that offer plug-ins, with the entry points by which executors find them."""
    found: dict[str, bytes] = {}
    for package, entry_points in installed_packages().items():
        for name, path in package_files(package).items():
            if not is_test(Path(name)):
                found[str(PurePosixPath(name))] = path.read_bytes()
        groups: dict[str, list[str]] = {}
        for entry_point in entry_points:
            groups.setdefault(entry_point.group, []).append(f"{entry_point.name} = {entry_point.value}")
        text = "".join(f"[{group}]\n" + "\n".join(lines) + "\n" for group, lines in groups.items())
        found[f"{package}-0.dist-info/entry_points.txt"] = text.encode()
        found[f"{package}-0.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: {package}\nVersion: 0\n".encode()
    return found


def _own_modules() -> dict[str, bytes]:
    """Return the imported modules that belong neither to carrycast nor to the installation."""
    return {str(name): path.read_bytes() for name, path in _module_sources(list(sys.modules.items()))}


def _module_sources(modules: Iterable[tuple[str, ModuleType | None]]) -> Iterator[tuple[PurePosixPath, Path]]:
    for name, module in modules:
        written = getattr(module, "__file__", None)
        if not isinstance(written, str) or name.startswith("__") or name.split(".")[0] == PACKAGE:
            continue
        path = Path(written)
        if path.suffix == ".py" and path.is_file() and _is_outside_installation(path.resolve()):
            place = PurePosixPath(*name.split("."))
            yield (place / path.name if path.name == "__init__.py" else place.with_name(f"{place.name}.py")), path


def _is_outside_installation(path: Path) -> bool:
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    return installed.isdisjoint([path, *path.parents])


def _write_archive(archive: Path, files: dict[str, bytes]) -> None:
    folders = sorted({f"{parent}/" for name in files for parent in PurePosixPath(name).parents if parent.name})
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        # A folder without an __init__ is a package for Python only if the archive has an entry for it.
        for folder in folders:
            made.writestr(zipfile.ZipInfo(folder, _DATE), b"")
        for name, content in sorted(files.items()):
            made.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
