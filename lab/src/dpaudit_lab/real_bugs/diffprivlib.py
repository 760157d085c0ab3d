"""Public bugs of diffprivlib, IBM's library: two releases, one old and the last."""

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType

from dpaudit_lab.real_bugs.cases import Bug, Case, approx, pure
from dpaudit_lab.real_bugs.loading import part_of

__all__ = ["BUGS"]

_ISSUES = "https://github.com/IBM/differential-privacy-library/issues/"
_LAST = "0.6.6"
_OLD = "0.4.1"


def _old_mechanisms() -> ModuleType:
    warnings.simplefilter("ignore")
    return part_of("diffprivlib", "mechanisms")


def _library() -> ModuleType:
    warnings.simplefilter("ignore")
    return import_module("diffprivlib")


def _mironov() -> Case:
    laplace = _old_mechanisms().Laplace(epsilon=1.0, sensitivity=1.0)
    return Case(function=laplace.randomise, x=0.0, y=1.0, claim=pure(1.0))


def _wishart() -> Case:
    np = import_module("numpy")
    wishart = _old_mechanisms().Wishart(epsilon=1.0, sensitivity=1.0)

    def release(row: Sequence[float]) -> list[float]:
        noisy = wishart.randomise(np.outer(row, row))
        return [float(value) for value in noisy.ravel()]

    return Case(function=release, x=[0.0, 0.0], y=[1.0, 0.0], claim=pure(1.0))


def _nan() -> Case:
    library = _library()

    def release(values: list[float]) -> float:
        return float(
            library.tools.mean(
                values,
                epsilon=1.0,
                bounds=(0, 1),
                accountant=library.BudgetAccountant(),
            )
        )

    nan = float("nan")
    return Case(
        function=release,
        x=[0.0, 0.0, 0.0, 0.0],
        y=[0.0, 0.0, 0.0, nan],
        claim=pure(1.0),
    )


def _precision_of_laplace() -> Case:
    laplace = _library().mechanisms.Laplace(epsilon=1.0, sensitivity=1.0)
    return Case(function=laplace.randomise, x=0.0, y=1.0, claim=pure(1.0))


def _precision_of_gaussian() -> Case:
    gaussian = _library().mechanisms.GaussianAnalytic(
        epsilon=0.5, delta=0.01, sensitivity=1.0
    )
    return Case(function=gaussian.randomise, x=0.0, y=1.0, claim=approx(0.5, 0.01))


def _offsets() -> Case:
    np = import_module("numpy")
    _library()
    regression = import_module("diffprivlib.models.linear_regression")
    bounds = (np.array([0.0]), np.array([1.0]))

    def release(rows: list[tuple[float, float]]) -> list[float]:
        table = np.array(rows)
        _, _, of_x, of_y, _ = regression._preprocess_data(
            table[:, :1],
            table[:, 1],
            fit_intercept=True,
            epsilon=1.0,
            bounds_X=bounds,
            bounds_y=bounds,
        )
        return [round(float(np.ravel(value)[0]), 6) for value in (of_x, of_y)]

    rest = [(0.5, 0.5)] * 9
    return Case(
        function=release,
        x=[*rest, (0.0, 0.0)],
        y=[*rest, (1.0, 1.0)],
        claim=pure(1.0),
    )


def _diagonal() -> Case:
    np = import_module("numpy")
    _library()
    regression = import_module("diffprivlib.models.linear_regression")
    bounds_x = (np.array([0.0]), np.array([100.0]))
    bounds_y = (np.array([0.0]), np.array([1.0]))

    def release(column: list[float]) -> list[float]:
        table = np.array(column).reshape(-1, 1)
        _, coefficients = regression._construct_regression_obj(
            table, np.zeros((len(table), 1)), bounds_x, bounds_y, 1.0, 0.0, None
        )
        return [round(float(v), 6) for part in coefficients for v in np.ravel(part)]

    rest = [50.0] * 10
    return Case(function=release, x=[*rest, 0.0], y=[*rest, 100.0], claim=pure(1.0))


def _old(issue: int, make: Callable[[], Case], summary: str, observed: str) -> Bug:
    return Bug(
        name=f"diffprivlib-{issue}",
        library="diffprivlib",
        version=_OLD,
        url=f"{_ISSUES}{issue}",
        summary=summary,
        fixed="0.5.0",
        disclosed=True,
        requires=("numpy", "scipy", "scikit-learn"),
        alone=(f"diffprivlib=={_OLD}",),
        observed=observed,
        make=make,
    )


def _last(
    issue: int,
    make: Callable[[], Case],
    summary: str,
    observed: str,
    *,
    part: str = "",
) -> Bug:
    return Bug(
        name=f"diffprivlib-{issue}{part}",
        library="diffprivlib",
        version=_LAST,
        url=f"{_ISSUES}{issue}",
        summary=summary,
        fixed=None,
        disclosed=True,
        requires=(f"diffprivlib=={_LAST}", "scikit-learn==1.6.1"),
        observed=observed,
        make=make,
    )


BUGS = (
    _old(
        19,
        _mironov,
        ("Laplace noise is added in floating point: low bits tell the value."),
        (
            "outputs of 0.0 and 1.0 are told apart by low bits; refuted "
            "with 2,000 calls in 0.1 s of CPU"
        ),
    ),
    _old(
        42,
        _wishart,
        (
            "The Wishart mechanism adds a positive matrix: nothing below "
            "the input is possible."
        ),
        (
            "one input never gives a first entry below 1, the other often "
            "does; refuted with 2,000 calls in 0.4 s of CPU"
        ),
    ),
    _last(
        80,
        _nan,
        "A NaN in the data makes every answer NaN.",
        (
            "the mean is NaN in each call with a NaN; refuted with 2,000 "
            "calls in 1.1 s of CPU"
        ),
    ),
    _last(
        94,
        _precision_of_laplace,
        "Noise of four uniforms is still added in floating point.",
        (
            "outputs of 0.0 and 1.0 are told apart by low bits; refuted "
            "with 2,000 calls in 0.2 s of CPU"
        ),
        part="-laplace",
    ),
    _last(
        94,
        _precision_of_gaussian,
        "Noise of several normals is still added in floating point.",
        (
            "outputs of 0.0 and 1.0 are told apart by low bits; refuted "
            "with 2,000 calls in 0.2 s of CPU"
        ),
        part="-gaussian",
    ),
    _last(
        104,
        _offsets,
        (
            "The means of X and y both spend the part of the budget that is "
            "meant for one."
        ),
        "both means move; refuted with 2,000 calls in 3.5 s of CPU",
    ),
    _last(
        105,
        _diagonal,
        ("Squares of a feature get noise for its lower bound, none if that is 0."),
        (
            "25000 or 35000 is released without noise; refuted with 2,000 "
            "calls in 0.8 s of CPU"
        ),
    ),
)
