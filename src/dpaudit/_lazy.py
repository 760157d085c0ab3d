"""Names that a package fetches from its modules when they are first used.

A command that prints its help, or a worker that runs a sweep's trials, does not wait
for all of them. Which names there are, and where each lives, is listed once, in the
stub ``__init__.pyi`` beside the package, which type checkers and editors read as well
(Scientific Python's SPEC 1).
"""

from collections.abc import Callable
from importlib import import_module
from sys import modules

from dpaudit.errors import MissingExtraError

__all__ = ["names_of"]


def names_of(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package."""
    found = _homes(file)

    def fetch(name: str) -> object:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if found[name] == package:
            return import_module(f"{package}.{name}")
        try:
            value = getattr(import_module(found[name]), name)
        except MissingExtraError as error:
            return _absent(name, error)
        vars(modules[package])[name] = value
        return value

    def listed() -> list[str]:
        own = {name for name in vars(modules[package]) if name.startswith("__")}
        return sorted({*own, *found})

    return fetch, listed, sorted(found)


def _homes(file: str) -> dict[str, str]:
    """Return the names that the stub beside a package lists, and their modules.

    A line of it is ``from module import name as name``.
    """
    with open(file.removesuffix(".py") + ".pyi", encoding="utf-8") as stub:
        lines = [line.split() for line in stub]
    return {line[3]: line[1] for line in lines if line[:1] == ["from"]}


def _absent(name: str, error: MissingExtraError) -> type:
    """Return what stands for a class whose extra is missing: it can only be inspected.

    So a package can be listed, and helped with, whatever is installed.
    """

    def refuse(*_: object, **__: object) -> object:
        raise error

    return type(name, (), {"__doc__": f"Missing: {error}.", "__new__": refuse})
