"""The input files and plug-ins of a scenario. A digest of the files' content tells when a run must be repeated."""

import hashlib
from pathlib import Path

from carrycast.core.protocol import find_application
from carrycast.core.settings import file_locator, map_files
from carrycast.errors import UserError
from carrycast.sim.scenario.scenario import Scenario
from carrycast.trace import installed_folds

_ABSENT = b"absent"


def input_files(scenario: Scenario) -> list[Path]:
    """Return every file that a run of the scenario reads, in the order of the keys that name them."""
    found: dict[str, None] = {}
    place = file_locator(Path(scenario.base))

    def note(name: str) -> str:
        found[place(name)] = None
        return name

    map_files(scenario, note)
    map_files(scenario.radio_model(), note)
    # The scenario keeps these as plain tables; only the parsed settings know which of their values are files.
    model = scenario.mobility_model()
    if model is not None:
        model.with_files(note)
    if scenario.protocol:
        plan = scenario.make_stack_plan()
        for settings in (plan.settings, plan.router_settings):
            if settings is not None:
                map_files(settings, note)
    return [Path(name) for name in found]


def used_plugins(scenario: Scenario) -> list[type]:
    """Return the plug-in classes that a run of the scenario uses: radio, movement models, protocol, router,
    applications, and the metrics of installed packages. Their code decides the results, wherever it is installed."""
    found: list[type] = [type(scenario.radio_model()), *installed_folds()]
    model = scenario.mobility_model()
    models = [] if model is None else [model]
    while models:
        model = models.pop()
        found.append(type(model))
        models += model.component_models()
    if scenario.protocol:
        plan = scenario.make_stack_plan()
        found += [plan.protocol] if plan.router is None else [plan.protocol, plan.router]
    return found + [find_application(entry.name) for entry in scenario.applications]


def input_digest(scenario: Scenario) -> str:
    """Hash the content of all input files; a missing file has a fixed hash. Empty if the scenario reads no files."""
    files = input_files(scenario)
    if not files:
        return ""
    hashed = hashlib.blake2b(digest_size=16)
    for path in files:
        hashed.update(_hash_content(path))
    return hashed.hexdigest()


def _hash_content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    except FileNotFoundError:
        return _ABSENT
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
