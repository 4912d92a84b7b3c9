"""Builds the native simulation core (`carrycast._native`) where there is a C++ compiler.

Hatchling calls `NativeCoreHook` for every wheel. Without a compiler the wheel is pure Python, and the simulator
uses its Python engine. In a checkout `python hatch_build.py` builds the core in place; `--sanitize` adds the address
and undefined-behavior sanitizers.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
SOURCES = Path("src", "carrycast", "sim", "engine", "native", "cpp")
PACKAGE = Path("src", "carrycast")
NAME = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
_FLAGS = [
    "-std=c++17",
    "-O2",
    "-ffp-contract=off",
    "-g0",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-missing-field-initializers",
]
_SANITIZED = ["-std=c++17", "-O1", "-ffp-contract=off", "-g", "-fno-omit-frame-pointer", "-fvisibility=hidden"]
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


class BuildError(Exception):
    """The core cannot be built here."""


def digest_sources(root: Path = ROOT) -> str:
    """A digest of the sources. The core contains it, so that a build of other sources is not used."""
    hashed = hashlib.blake2b(digest_size=16)
    for path in sorted((root / SOURCES).glob("*.[ch]*")):
        hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()


def is_current(root: Path = ROOT) -> bool:
    """Whether the core that stands in a checkout was built from its sources."""
    path = root / PACKAGE / NAME
    return path.exists() and digest_sources(root).encode() in path.read_bytes()


def build(root: Path, target: Path, sanitize: bool = False) -> None:
    """Compile the sources and write the extension to `target`; raise a BuildError if that fails."""
    try:
        from setuptools._distutils.ccompiler import new_compiler
        from setuptools._distutils.errors import CCompilerError, DistutilsError
        from setuptools._distutils.sysconfig import customize_compiler
    except ImportError as error:
        raise BuildError(f"setuptools is missing: {error}") from None
    flags = _SANITIZED + _SANITIZERS if sanitize else _FLAGS
    sources = sorted((root / SOURCES).glob("*.cpp"))
    with tempfile.TemporaryDirectory() as scratch:

        def compile_one(source: Path) -> list[str]:
            compiler = new_compiler()
            customize_compiler(compiler)
            # Compilers record relative names of sources, so that a build does not depend on its folder.
            return compiler.compile(
                [os.path.relpath(source)],
                output_dir=os.path.join(scratch, source.stem),
                include_dirs=[sysconfig.get_paths()["include"]],
                macros=[("CARRYCAST_SOURCE_DIGEST", f'"{digest_sources(root)}"')],
                extra_postargs=flags,
            )

        try:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                objects = [name for found in pool.map(compile_one, sources) for name in found]
            compiler = new_compiler()
            customize_compiler(compiler)
            made = os.path.join(scratch, NAME)
            compiler.link_shared_object(
                objects, made, extra_postargs=_SANITIZERS if sanitize else ["-s"], target_lang="c++"
            )
            # Renamed, so that a process never loads half of the file.
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            shutil.copy(made, part)
            part.replace(target)
        except (CCompilerError, DistutilsError, OSError) as error:
            raise BuildError(" ".join(str(error).split())) from None


def build_in_place(root: Path = ROOT, sanitize: bool = False) -> bool:
    """Build the core beside the Python sources; False, with one line that says why, if it cannot be built."""
    try:
        build(root, root / PACKAGE / NAME, sanitize)
    except BuildError as error:
        print(f"carrycast: the native core was not built, the simulator will be pure Python: {error}", file=sys.stderr)
        with contextlib.suppress(OSError):
            (root / PACKAGE / NAME).unlink()
        return False
    return True


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:
    pass  # `python hatch_build.py` needs no hatchling.
else:

    class NativeCoreHook(BuildHookInterface[Any]):
        """Adds the core to a wheel, or puts it in place for an editable installation."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name != "wheel":
                return
            root = Path(self.root)
            if version == "editable":
                build_in_place(root)
                return
            self._scratch = Path(tempfile.mkdtemp())
            try:
                build(root, self._scratch / NAME)
            except BuildError as error:
                self.app.display_warning(f"the native core was not built, the wheel is pure Python: {error}")
                return
            build_data["force_include"][str(self._scratch / NAME)] = f"carrycast/{NAME}"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            shutil.rmtree(getattr(self, "_scratch", ""), ignore_errors=True)


def main() -> int:
    """Build in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sanitize", action="store_true", help="with the address and undefined-behavior sanitizers")
    return 0 if build_in_place(sanitize=parser.parse_args().sanitize) else 1


if __name__ == "__main__":
    sys.exit(main())
