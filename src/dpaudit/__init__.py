"""Audit differential privacy from one run.

Here are the tasks, and what they take and give. What they are made of is in
``dpaudit.bounds`` and ``dpaudit.game``; audits of training beside Opacus are in
``dpaudit.training``.
"""

from dpaudit import _lazy

_fetch, __dir__, __all__ = _lazy.names_of(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 (slow)

        return version("dpaudit")
    return _fetch(name)
