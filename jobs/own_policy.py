"""Finds and checks the class that `warmup.own_policy` names: at submission, and again wherever a planner runs.

`office.py:OfficeHours` is a class in a file of your own, which the job ships to its TaskManagers; with
`package.module:Class` it is one that is installed there already.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from analytics.own_policy import OwnPolicy
from schemas.errors import BrokenConfiguration

KEY = "warmup.own_policy"
SUFFIX = ".py"


def load_own_policy(name: str) -> OwnPolicy:
    """An object of the class that is named.

    Raises:
        BrokenConfiguration: there is no such file, module or class, it cannot be made, or it is no `OwnPolicy`.
    """
    place, _, class_name = name.rpartition(":")
    found = getattr(_module(place, name), class_name, None)
    if not isinstance(found, type):
        raise BrokenConfiguration(f"{KEY}: {place} has no class {class_name}")
    try:
        own = found()
    except Exception as fault:  # the deployment's own code
        raise BrokenConfiguration(f"{KEY}: {name}() raises {type(fault).__name__}: {fault}") from fault
    if not isinstance(own, OwnPolicy) or not _takes_one(own):
        raise BrokenConfiguration(
            f"{KEY}: {name} is no policy: it needs density(self, proposal) -> float; see docs/policies.md"
        )
    return own


def located(name: str) -> str:
    """The same with an absolute path, where a file is named: a job's processes run in other folders."""
    place, _, class_name = name.rpartition(":")
    return f"{Path(place).absolute()}:{class_name}" if place.endswith(SUFFIX) else name


def shipped(name: str | None) -> Path | None:
    """The file that must be shipped to every TaskManager; None where there is none to ship."""
    place = (name or "").rpartition(":")[0]
    return Path(place) if place.endswith(SUFFIX) else None


def _module(place: str, name: str) -> ModuleType:
    file = Path(place)
    try:
        if not place.endswith(SUFFIX):
            return importlib.import_module(place)
        # On another machine the file lies where Flink has put it, which is on the module path.
        return _of_file(file) if file.is_file() else importlib.import_module(file.stem)
    except ModuleNotFoundError as fault:
        if fault.name in (place, file.stem, place.partition(".")[0]):
            kind = "file" if place.endswith(SUFFIX) else "module"
            raise BrokenConfiguration(f"{KEY}: there is no {kind} {place} ({name})") from None
        raise BrokenConfiguration(f"{KEY}: {place} needs {fault.name}, which is not installed") from fault
    except Exception as fault:  # the deployment's own code
        raise BrokenConfiguration(f"{KEY}: {place} raises {type(fault).__name__}: {fault}") from fault


def _of_file(file: Path) -> ModuleType:
    known_as = f"stoker_own_{file.stem}"
    spec = importlib.util.spec_from_file_location(known_as, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[known_as] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _takes_one(own: OwnPolicy) -> bool:
    try:
        inspect.signature(own.density).bind(None)
    except TypeError:
        return False
    return True
