"""Imports parts of a package whose own ``__init__`` needs what is not installed."""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = ["file_of", "part_of"]


def part_of(package: str, part: str) -> ModuleType:
    """Return a module of a package without running the package's ``__init__``.

    Args:
        package: Its name; it must not have been imported before.
        part: The module in it.
    """
    if package not in sys.modules:
        bare = ModuleType(package)
        bare.__path__ = [str(_folder(package))]
        sys.modules[package] = bare
    return import_module(f"{package}.{part}")


def file_of(package: str, file: str) -> ModuleType:
    """Return the module in one file of a package, without its parents.

    Args:
        package: Its name.
        file: Path of the file in it.
    """
    path = _folder(package) / file
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a module")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0])
