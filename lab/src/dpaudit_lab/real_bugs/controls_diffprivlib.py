"""Correct mechanisms of diffprivlib: those whose outputs are discrete."""

import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from dpaudit_lab.real_bugs.cases import Case, Control, approx, pure

__all__ = ["CONTROLS"]

_REQUIRES = ("diffprivlib==0.6.6", "scikit-learn==1.6.1")


def _library() -> ModuleType:
    warnings.simplefilter("ignore")
    return import_module("diffprivlib")


def _geometric() -> Case:
    mechanism = _library().mechanisms.Geometric(epsilon=1.0, sensitivity=1)
    return Case(function=mechanism.randomise, x=0, y=1, claim=pure(1.0))


def _truncated() -> Case:
    mechanism = _library().mechanisms.GeometricTruncated(
        epsilon=1.0, sensitivity=1, lower=0, upper=5
    )
    return Case(function=mechanism.randomise, x=2, y=3, claim=pure(1.0))


def _binary() -> Case:
    mechanism = _library().mechanisms.Binary(epsilon=1.0, value0="no", value1="yes")
    return Case(function=mechanism.randomise, x="no", y="yes", claim=pure(1.0))


def _chosen(name: str) -> Callable[[], Case]:
    def make() -> Case:
        mechanism = getattr(_library().mechanisms, name)

        def choose(scores: list[float]) -> int:
            return int(
                mechanism(epsilon=1.0, sensitivity=1.0, utility=scores).randomise()
            )

        return Case(
            function=choose, x=[0.0, 0.0, 0.0], y=[1.0, -1.0, -1.0], claim=pure(1.0)
        )

    return make


def _discrete_gaussian() -> Case:
    mechanism = _library().mechanisms.GaussianDiscrete(
        epsilon=1.0, delta=0.01, sensitivity=1
    )
    return Case(function=mechanism.randomise, x=0, y=1, claim=approx(1.0, 0.01))


def _count() -> Case:
    library = _library()

    def release(values: list[int]) -> int:
        accountant = library.BudgetAccountant()
        count = library.tools.count_nonzero(values, epsilon=1.0, accountant=accountant)
        return int(count)

    return Case(function=release, x=[1, 0, 0], y=[1, 0, 1], claim=pure(1.0))


def _histogram() -> Case:
    library = _library()

    def release(values: list[float]) -> list[int]:
        counts, _ = library.tools.histogram(
            values,
            epsilon=1.0,
            bins=3,
            range=(0, 3),
            accountant=library.BudgetAccountant(),
        )
        return [int(count) for count in counts]

    return Case(function=release, x=[0.5, 0.5], y=[0.5, 0.5, 1.5], claim=pure(1.0))


_MADE: tuple[tuple[str, Callable[[], Case]], ...] = (
    ("geometric", _geometric),
    ("geometric-truncated", _truncated),
    ("binary", _binary),
    ("exponential", _chosen("Exponential")),
    ("permute-and-flip", _chosen("PermuteAndFlip")),
    ("gaussian-discrete", _discrete_gaussian),
    ("count-nonzero", _count),
    ("histogram", _histogram),
)

CONTROLS = tuple(
    Control(name=f"diffprivlib-{name}", requires=_REQUIRES, make=make)
    for name, make in _MADE
)
