"""Public bugs of SmartNoise: its first core, its SQL and its synthesizers."""

import os
import warnings
from collections.abc import Callable
from importlib import import_module

from dpaudit_lab.real_bugs.cases import Bug, Case, approx, pure
from dpaudit_lab.real_bugs.loading import file_of

__all__ = ["BUGS"]

_SDK = "https://github.com/opendp/smartnoise-sdk/issues/"
_CORE = "https://github.com/opendp/smartnoise-core/issues/"
_BOUNDS = "sql/_mechanisms/approx_bounds.py"


def _core_sum(mechanism: str, *, upper: float) -> Callable[[list[float]], float]:
    # Its messages were compiled before protobuf 4.
    os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
    warnings.simplefilter("ignore")
    np, core = import_module("numpy"), import_module("opendp.smartnoise.core")

    def release(values: list[float]) -> float:
        column = np.array(values, dtype=float).reshape(-1, 1)
        with core.Analysis(neighboring="substitute") as analysis:
            total = core.dp_sum(
                core.to_float(core.Component.of(column, public=False)),
                data_lower=0.0,
                data_upper=upper,
                data_rows=len(values),
                data_columns=1,
                mechanism=mechanism,
                privacy_usage={"epsilon": 0.5, "delta": 1e-5},
            )
            analysis.release()
            return float(np.ravel(total.value)[0])

    return release


def _squared_scale() -> Case:
    upper = 0.01
    return Case(
        function=_core_sum("Gaussian", upper=upper),
        x=[0.0] * 10,
        y=[upper] + [0.0] * 9,
        claim=approx(0.5, 1e-5),
    )


def _wrong_sign() -> Case:
    return Case(
        function=_core_sum("AnalyticGaussian", upper=1.0),
        x=[0.0] * 10,
        y=[1.0] + [0.0] * 9,
        claim=approx(0.5, 1e-5),
    )


def _quantile_underflow() -> Case:
    quantile = file_of("snsql", _BOUNDS).quantile

    def release(values: list[int]) -> float:
        return round(float(quantile(values, 0.5, 1, 0, 1)), 3)

    return Case(
        function=release,
        x=[0] * 1491 + [1],
        y=[0] * 1492 + [1],
        claim=pure(1.0),
        raising=(ValueError,),
    )


def _infinite_value() -> Case:
    bounds = file_of("snsql", _BOUNDS).approx_bounds
    rest = [float(value) for value in range(100)]
    return Case(
        function=lambda values: str(bounds(values, 1.0)),
        x=[*rest, 42.17],
        y=[*rest, float("inf")],
        claim=pure(2.0),
        raising=(ValueError,),
    )


def _unclipped_covariance() -> Case:
    pd = import_module("pandas")
    covariance = file_of("snsynth", "models/dp_covariance.py")
    columns, ranges = ["a", "b"], pd.DataFrame([[0.0, 0.0], [1.0, 1.0]])

    def release(rows: list[tuple[float, float]]) -> list[float]:
        table = pd.DataFrame(rows, columns=columns)
        mechanism = covariance.DPcovariance(len(table), columns, ranges, 1.0)
        return [round(float(value), 4) for value in mechanism.release(table)]

    rest = [(0.2, 0.1), (0.4, 0.5), (0.6, 0.4), (0.8, 0.9)]
    return Case(
        function=release,
        x=[*rest, (0.5, 0.5)],
        y=[*rest, (100.0, 100.0)],
        claim=pure(1.0),
    )


def _core(part: str, make: Callable[[], Case], summary: str, observed: str) -> Bug:
    return Bug(
        name=f"smartnoise-core-316-{part}",
        library="opendp-smartnoise-core",
        version="0.1.0",
        url=f"{_CORE}316",
        summary=summary,
        fixed="0.1.1",
        disclosed=True,
        requires=("numpy", "pandas", "protobuf==3.20.3"),
        alone=("opendp-smartnoise-core==0.1.0",),
        observed=observed,
        make=make,
    )


def _sql(issue: int, make: Callable[[], Case], summary: str, observed: str) -> Bug:
    return Bug(
        name=f"smartnoise-sql-{issue}",
        library="smartnoise-sql",
        version="1.0.1",
        url=f"{_SDK}{issue}",
        summary=summary,
        fixed="1.0.2",
        disclosed=True,
        requires=("numpy", "opendp==0.7.0"),
        alone=("smartnoise-sql==1.0.1",),
        observed=observed,
        make=make,
    )


BUGS = (
    _core(
        "gaussian",
        _squared_scale,
        ("The scale of Gaussian noise is squared, so that small ones become tiny."),
        (
            "standard deviation 0.0085 where 0.097 is needed; refuted with "
            "1,000 calls in 20.7 s of CPU"
        ),
    ),
    _core(
        "analytic",
        _wrong_sign,
        "A wrong sign in the analytic calibration reduces sigma.",
        (
            "standard deviation 0.023 where 6.3 is needed; refuted with "
            "1,000 calls in 18.2 s of CPU"
        ),
    ),
    _sql(
        572,
        _quantile_underflow,
        ("All weights underflow to 0 from a certain number of records on."),
        ("a number, or an error in each call; refuted with 500 calls in 4 s of CPU"),
    ),
    _sql(
        574,
        _infinite_value,
        "A value that is not finite raises an error.",
        ("bounds, or an error in each call; refuted with 500 calls in 24.4 s of CPU"),
    ),
    Bug(
        name="smartnoise-synth-622",
        library="smartnoise-synth",
        version="1.0.5",
        url=f"{_SDK}622",
        summary=(
            "The data are clipped, and the covariance is taken of the data before that."
        ),
        fixed="1.0.6",
        disclosed=True,
        requires=("numpy", "pandas"),
        alone=("smartnoise-synth==1.0.5",),
        observed=(
            "covariances near 0 and near 1980 with noise of scale about 1; "
            "refuted with 500 calls in 2.4 s of CPU"
        ),
        make=_unclipped_covariance,
    ),
)
