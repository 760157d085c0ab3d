"""Correct measurements of OpenDP 0.16, none near a public bug.

Pairs avoid nulls, NaN, overflow, thresholds, ordered metrics and trees in L2, which
are what the open reports are about. Each claim is what the library states.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from dpaudit_lab.real_bugs.cases import Case, Control, approx, pure

__all__ = ["CONTROLS"]

_REQUIRES = ("opendp[polars]==0.16.0",)

# What OpenDP and polars make has no types.
_Made: TypeAlias = Any
_Build: TypeAlias = Callable[[ModuleType], _Made]


def _library() -> ModuleType:
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
    return dp


def _stated(
    build: _Build,
    x: object,
    y: object,
    distance: object = 1,
    *,
    shown: Callable[[Any], object] = lambda output: output,
) -> Callable[[], Case]:
    """Return the case of a measurement that claims what its map says."""

    def make() -> Case:
        measurement = build(_library())
        loss = measurement.map(distance)
        measure = str(measurement.output_measure)
        zcdp = measure.startswith("ZeroConcentrated")
        claim = approx(*loss) if isinstance(loss, tuple) else pure(loss)
        return Case(
            function=lambda value: shown(measurement(value)),
            x=x,
            y=y,
            claim=None if zcdp else claim,
            rho=loss if zcdp else None,
            measurement=measurement,
            d_in=distance,
        )

    return make


def _integer(dp: ModuleType) -> _Made:
    return dp.atom_domain(T=int), dp.absolute_distance(T=int)


def _float(dp: ModuleType) -> _Made:
    return dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)


def _integers(dp: ModuleType, norm: str) -> _Made:
    metric = getattr(dp, f"{norm}_distance")(T=int)
    return dp.vector_domain(dp.atom_domain(T=int)), metric


def _floats(dp: ModuleType, norm: str) -> _Made:
    metric = getattr(dp, f"{norm}_distance")(T=float)
    return dp.vector_domain(dp.atom_domain(T=float, nan=False)), metric


def _rows(dp: ModuleType, kind: type = int, **sizes: int) -> _Made:
    atom = (
        dp.atom_domain(T=kind, nan=False) if kind is float else dp.atom_domain(T=kind)
    )
    return dp.vector_domain(atom, **sizes), dp.symmetric_distance()


def _clipped(dp: ModuleType, kind: type, bounds: object, **sizes: int) -> _Made:
    return _rows(dp, kind, **sizes) >> dp.t.then_clamp(bounds=bounds)


def _laplace(dp: ModuleType, scale: float = 1.0) -> _Made:
    return dp.m.make_laplace(*_integer(dp), scale=scale)


def _gaussian(dp: ModuleType, scale: float = 1.0) -> _Made:
    return dp.m.make_gaussian(*_integer(dp), scale=scale)


def _noisy_max(dp: ModuleType, *, pure_dp: bool = True, negate: bool = False) -> _Made:
    measure = dp.max_divergence() if pure_dp else dp.zero_concentrated_divergence()
    space = _integers(dp, "linf")
    return dp.m.make_noisy_max(*space, measure, scale=1.0, negate=negate)


def _bits(dp: ModuleType, most: int) -> _Made:
    domain = dp.bitvector_domain(max_weight=most)
    return dp.m.make_randomized_response_bitvec(domain, dp.discrete_distance(), f=0.5)


def _categories(dp: ModuleType, metric: str = "L1Distance<int>") -> _Made:
    return _rows(dp, str) >> dp.t.then_count_by_categories(
        categories=["a", "b"], MO=metric
    )


def _quantile(dp: ModuleType) -> _Made:
    return _rows(dp) >> dp.m.then_private_quantile(
        dp.max_divergence(), candidates=[0, 25, 50, 75, 100], alpha=0.5, scale=1.0
    )


def _amplified(dp: ModuleType) -> _Made:
    total = _clipped(dp, int, (0, 1), size=2) >> dp.t.then_sum()
    return dp.c.make_population_amplification(
        total >> dp.m.then_laplace(scale=0.5), population_size=8
    )


def _one_sample() -> Case:
    dp, random = _library(), import_module("random")
    measurement = _amplified(dp)
    return Case(
        function=lambda values: measurement(random.sample(values, 2)),
        x=[0] * 8,
        y=[1] + [0] * 7,
        claim=pure(measurement.map(2)),
    )


def _canonical(dp: ModuleType) -> _Made:
    return dp.m.make_canonical_noise(*_float(dp), d_in=1.0, d_out=(1.0, 0.01))


def _fixed_delta(dp: ModuleType) -> _Made:
    converted = dp.c.make_zCDP_to_approxDP(_gaussian(dp, 2.0))
    return dp.c.make_fix_delta(converted, 1e-5)


_VALUES: tuple[tuple[str, Callable[[], Case]], ...] = (
    ("laplace-int", _stated(_laplace, 0, 1)),
    ("laplace-int-scale-3", _stated(lambda dp: _laplace(dp, 3.0), 0, 3, 3)),
    (
        "laplace-float",
        _stated(lambda dp: dp.m.make_laplace(*_float(dp), scale=1.0), 0.0, 1.0, 1.0),
    ),
    (
        "laplace-float-grid",
        _stated(
            lambda dp: dp.m.make_laplace(*_float(dp), scale=1.0, k=-10), 0.0, 1.0, 1.0
        ),
    ),
    (
        "laplace-ints",
        _stated(
            lambda dp: dp.m.make_laplace(*_integers(dp, "l1"), scale=2.0),
            [0, 0, 0],
            [1, 0, 1],
            2,
        ),
    ),
    (
        "laplace-floats",
        _stated(
            lambda dp: dp.m.make_laplace(*_floats(dp, "l1"), scale=1.0),
            [0.0, 0.0],
            [0.5, -0.5],
            1.0,
        ),
    ),
    ("gaussian-int", _stated(_gaussian, 0, 1)),
    (
        "gaussian-float",
        _stated(lambda dp: dp.m.make_gaussian(*_float(dp), scale=1.0), 0.0, 1.0, 1.0),
    ),
    (
        "gaussian-ints",
        _stated(
            lambda dp: dp.m.make_gaussian(*_integers(dp, "l2"), scale=5.0),
            [0, 0],
            [3, 4],
            5,
        ),
    ),
    (
        "gaussian-floats",
        _stated(
            lambda dp: dp.m.make_gaussian(*_floats(dp, "l2"), scale=1.0),
            [0.0, 0.0],
            [0.6, 0.8],
            1.0,
        ),
    ),
    (
        "geometric",
        _stated(lambda dp: dp.m.make_geometric(*_integer(dp), scale=1.0), 0, 1),
    ),
    (
        "geometric-bounded",
        _stated(
            lambda dp: dp.m.make_geometric(*_integer(dp), scale=1.0, bounds=(0, 10)),
            4,
            5,
        ),
    ),
    (
        "geometric-ints",
        _stated(
            lambda dp: dp.m.make_geometric(*_integers(dp, "l1"), scale=1.0),
            [3, 0],
            [3, 1],
        ),
    ),
    (
        "response-bool",
        _stated(
            lambda dp: dp.m.make_randomized_response_bool(prob=0.75),
            x=False,
            y=True,
            shown=int,
        ),
    ),
    (
        "response-bool-constant-time",
        _stated(
            lambda dp: dp.m.make_randomized_response_bool(prob=0.6, constant_time=True),
            x=False,
            y=True,
            shown=int,
        ),
    ),
    (
        "response-of-4",
        _stated(
            lambda dp: dp.m.make_randomized_response(list("abcd"), prob=0.5), "a", "b"
        ),
    ),
    (
        "response-of-2",
        _stated(lambda dp: dp.m.make_randomized_response([0, 1], prob=0.9), 0, 1),
    ),
    ("response-bits", _stated(lambda dp: _bits(dp, 1), b"\x01", b"\x02", shown=list)),
    (
        "response-bits-weight-2",
        _stated(lambda dp: _bits(dp, 2), b"\x03", b"\x0c", shown=list),
    ),
    ("noisy-max", _stated(_noisy_max, [0, 0], [1, -1])),
    (
        "noisy-max-of-5",
        _stated(_noisy_max, [0, 0, 0, 0, 0], [1, -1, -1, -1, -1]),
    ),
    (
        "noisy-min",
        _stated(lambda dp: _noisy_max(dp, negate=True), [0, 0], [1, -1]),
    ),
    (
        "noisy-max-zcdp",
        _stated(lambda dp: _noisy_max(dp, pure_dp=False), [0, 0], [1, -1]),
    ),
    ("canonical", _stated(_canonical, 0.0, 1.0, 1.0)),
    ("private-quantile", _stated(_quantile, [10, 10, 60], [10, 10, 60, 60])),
    (
        "count-laplace",
        _stated(
            lambda dp: _rows(dp) >> dp.t.then_count() >> dp.m.then_laplace(scale=1.0),
            [1, 1, 1],
            [1, 1, 1, 1],
        ),
    ),
    (
        "count-gaussian",
        _stated(
            lambda dp: _rows(dp) >> dp.t.then_count() >> dp.m.then_gaussian(scale=1.0),
            [1, 1, 1],
            [1, 1],
        ),
    ),
    (
        "count-distinct",
        _stated(
            lambda dp: (
                _rows(dp, str)
                >> dp.t.then_count_distinct()
                >> dp.m.then_laplace(scale=1.0)
            ),
            ["a", "a"],
            ["a", "a", "b"],
        ),
    ),
    (
        "count-by-categories",
        _stated(
            lambda dp: _categories(dp) >> dp.m.then_laplace(scale=1.0),
            ["a", "b"],
            ["a", "b", "b"],
        ),
    ),
    (
        "count-by-categories-replaced",
        _stated(
            lambda dp: _categories(dp) >> dp.m.then_laplace(scale=2.0),
            ["a", "a"],
            ["a", "b"],
            2,
        ),
    ),
    (
        "count-by-categories-unknown",
        _stated(
            lambda dp: _categories(dp) >> dp.m.then_laplace(scale=1.0),
            ["a"],
            ["a", "z"],
        ),
    ),
    (
        "count-by-categories-gaussian",
        _stated(
            lambda dp: (
                _categories(dp, "L2Distance<int>") >> dp.m.then_gaussian(scale=1.0)
            ),
            ["a", "b"],
            ["a", "b", "b"],
        ),
    ),
    (
        "sum-ints",
        _stated(
            lambda dp: (
                _clipped(dp, int, (0, 10))
                >> dp.t.then_sum()
                >> dp.m.then_laplace(scale=10.0)
            ),
            [5, 5],
            [5, 5, 10],
        ),
    ),
    (
        "sum-ints-of-known-size",
        _stated(
            lambda dp: (
                _clipped(dp, int, (0, 10), size=3)
                >> dp.t.then_sum()
                >> dp.m.then_laplace(scale=10.0)
            ),
            [5, 5, 0],
            [5, 5, 10],
            2,
        ),
    ),
    (
        "sum-floats",
        _stated(
            lambda dp: (
                _clipped(dp, float, (0.0, 1.0), size=4)
                >> dp.t.then_sum()
                >> dp.m.then_laplace(scale=1.0)
            ),
            [0.5, 0.5, 0.5, 0.0],
            [0.5, 0.5, 0.5, 1.0],
            2,
        ),
    ),
    (
        "mean-floats",
        _stated(
            lambda dp: (
                _clipped(dp, float, (0.0, 1.0), size=4)
                >> dp.t.then_mean()
                >> dp.m.then_laplace(scale=0.25)
            ),
            [0.5, 0.5, 0.5, 0.0],
            [0.5, 0.5, 0.5, 1.0],
            2,
        ),
    ),
    (
        "mean-floats-gaussian",
        _stated(
            lambda dp: (
                _clipped(dp, float, (0.0, 1.0), size=4)
                >> dp.t.then_mean()
                >> dp.m.then_gaussian(scale=0.5)
            ),
            [0.5, 0.5, 0.5, 0.0],
            [0.5, 0.5, 0.5, 1.0],
            2,
        ),
    ),
    (
        "resized-sum",
        _stated(
            lambda dp: (
                _clipped(dp, int, (0, 10))
                >> dp.t.then_resize(size=4, constant=0)
                >> dp.t.then_sum()
                >> dp.m.then_laplace(scale=10.0)
            ),
            [10, 10, 10],
            [10, 10],
        ),
    ),
    (
        "tree-in-l1",
        _stated(
            lambda dp: (
                dp.t.make_b_ary_tree(
                    dp.vector_domain(dp.atom_domain(T=int), size=4),
                    dp.l1_distance(T=int),
                    leaf_count=4,
                    branching_factor=2,
                )
                >> dp.m.then_laplace(scale=3.0)
            ),
            [2, 0, 0, 0],
            [2, 1, 0, 0],
        ),
    ),
    (
        "two-laplace",
        _stated(
            lambda dp: dp.c.make_composition([_laplace(dp, 2.0), _laplace(dp, 2.0)]),
            0,
            1,
            shown=list,
        ),
    ),
    (
        "two-gaussian",
        _stated(
            lambda dp: dp.c.make_composition([_gaussian(dp, 2.0), _gaussian(dp, 1.0)]),
            0,
            1,
            shown=list,
        ),
    ),
    (
        "laplace-in-zcdp",
        _stated(lambda dp: dp.c.make_pureDP_to_zCDP(_laplace(dp)), 0, 1),
    ),
    (
        "laplace-in-approx",
        _stated(lambda dp: dp.c.make_approximate(_laplace(dp)), 0, 1),
    ),
    ("gaussian-in-approx", _stated(_fixed_delta, 0, 1)),
    ("amplified-once", _one_sample),
)


def _frame(
    query: Callable[[ModuleType, ModuleType], _Made],
    pair: tuple[Mapping[str, object], Mapping[str, object]],
    margins: tuple[Mapping[str, object], ...] = (),
    *,
    zcdp: bool = False,
    rows: int = 1,
) -> Callable[[], Case]:
    """Return the case of a query on a frame of a number ``x`` and a key ``k``."""

    def make() -> Case:
        dp, pl = _library(), import_module("polars")
        schema = {"x": pl.Int64, "k": pl.String}
        domain = dp.lazyframe_domain(
            [
                dp.series_domain("x", dp.atom_domain(T="i64")),
                dp.series_domain("k", dp.atom_domain(T=str)),
            ]
        )
        for margin in margins:
            domain = dp.with_margin(domain, dp.polars.Margin(**margin))
        measure = dp.zero_concentrated_divergence() if zcdp else dp.max_divergence()
        measurement = dp.m.make_private_lazyframe(
            domain,
            dp.frame_distance(dp.symmetric_distance()),
            measure,
            query(dp, pl.LazyFrame(schema=schema)),
        )

        def release(columns: Mapping[str, object]) -> list[tuple[object, ...]]:
            frame = measurement(pl.LazyFrame(columns, schema=schema)).collect()
            return sorted(frame.rows(), key=repr)

        bounds = [dp.polars.Bound(per_group=rows)]
        loss = measurement.map(bounds)
        return Case(
            function=release,
            x=pair[0],
            y=pair[1],
            claim=None if zcdp else pure(loss),
            rho=loss if zcdp else None,
            measurement=measurement,
            d_in=bounds,
        )

    return make


def _column(name: str) -> _Made:
    return import_module("polars").col(name)


_PAIR = (
    {"x": [1, 5, 9], "k": ["a", "a", "b"]},
    {"x": [1, 5, 9, 10], "k": ["a", "a", "b", "b"]},
)
_REPLACED = (
    {"x": [1, 5, 0], "k": ["a", "a", "b"]},
    {"x": [1, 5, 10], "k": ["a", "a", "b"]},
)
_KEYS = ({"max_length": 10}, {"by": ["k"], "invariant": "keys", "max_length": 10})
_LENGTHS = ({"by": ["k"], "invariant": "lengths", "max_length": 10},)

_FRAMES: tuple[tuple[str, Callable[[], Case]], ...] = (
    ("len", _frame(lambda dp, frame: frame.select(dp.len(scale=1.0)), _PAIR)),
    (
        "len-zcdp",
        _frame(lambda dp, frame: frame.select(dp.len(scale=1.0)), _PAIR, zcdp=True),
    ),
    (
        "sum",
        _frame(
            lambda _, frame: frame.select(_column("x").dp.sum((0, 10), scale=10.0)),
            _PAIR,
            ({"max_length": 10},),
        ),
    ),
    (
        "sum-zcdp",
        _frame(
            lambda _, frame: frame.select(_column("x").dp.sum((0, 10), scale=10.0)),
            _PAIR,
            ({"max_length": 10},),
            zcdp=True,
        ),
    ),
    (
        "filtered-len",
        _frame(
            lambda dp, frame: frame.filter(_column("x") > 4).select(dp.len(scale=1.0)),
            _PAIR,
        ),
    ),
    (
        "len-by-key",
        _frame(
            lambda dp, frame: frame.group_by("k").agg(dp.len(scale=1.0)), _PAIR, _KEYS
        ),
    ),
    (
        "sum-by-key",
        _frame(
            lambda _, frame: frame.group_by("k").agg(
                _column("x").dp.sum((0, 10), scale=10.0)
            ),
            _PAIR,
            _KEYS,
        ),
    ),
    (
        "sum-by-key-of-known-length",
        _frame(
            lambda _, frame: frame.group_by("k").agg(
                _column("x").dp.sum((0, 10), scale=10.0)
            ),
            _REPLACED,
            _LENGTHS,
            rows=2,
        ),
    ),
    (
        "median",
        _frame(
            lambda _, frame: frame.select(
                _column("x").dp.median(candidates=[0, 4, 8, 12], scale=1.0)
            ),
            _PAIR,
            ({"max_length": 10},),
        ),
    ),
)

CONTROLS = (
    *(Control(name=f"opendp-{n}", requires=_REQUIRES, make=m) for n, m in _VALUES),
    *(Control(name=f"polars-{n}", requires=_REQUIRES, make=m) for n, m in _FRAMES),
)
