"""Public bugs of OpenDP: reports with reproductions, run on the release they name.

Most were filed in September 2026 on 0.16.0 and are open; the others are fixed. Frames
are given as columns of plain Python, and the function makes the LazyFrame.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from dpaudit_lab.real_bugs.cases import Bug, Case, approx, pure

__all__ = ["BUGS"]

_ISSUES = "https://github.com/opendp/opendp/issues/"
_FEATURES = ("contrib", "honest-but-curious", "idealized-numerics")
_OLD_FEATURES = ("contrib", "honest-but-curious", "floating-point")
_NAN = float("nan")

# What OpenDP and polars make has no types.
_Made: TypeAlias = Any


def _library(features: tuple[str, ...] = _FEATURES) -> ModuleType:
    dp = import_module("opendp.prelude")
    dp.enable_features(*features)
    return dp


def _bit_vector(dp: ModuleType) -> _Made:
    return dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=1), dp.discrete_distance(), f=0.5
    )


def _last_bit() -> Case:
    dp = _library(_OLD_FEATURES)
    response = _bit_vector(dp)
    return Case(
        function=lambda bits: list(response(bits)),
        x=b"\x00",
        y=b"\x80",
        claim=pure(response.map(1)),
        measurement=response,
        d_in=1,
    )


def _bit_vector_length() -> Case:
    dp = _library()
    response = _bit_vector(dp)
    return Case(
        function=lambda bits: list(response(bits)),
        x=b"\x01",
        y=b"\x01\x00",
        claim=pure(response.map(1)),
        measurement=response,
        d_in=1,
    )


def _threshold() -> Case:
    dp = _library()
    measurement = dp.t.make_count_by(
        dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
    ) >> dp.m.then_laplace_threshold(scale=1.0, threshold=2)
    epsilon, delta = measurement.map(1)
    return Case(
        function=lambda users: len(measurement(users)),
        x=["user0"],
        y=[],
        claim=approx(epsilon, delta),
        measurement=measurement,
        d_in=1,
    )


def _rounded_mean() -> Case:
    dp = _library()
    low, size = 2.0**50, 1024
    deviations = dp.t.make_sum_of_squared_deviations(
        dp.vector_domain(dp.atom_domain(bounds=(low, low + 1), nan=False), size=size),
        dp.symmetric_distance(),
    )
    measurement = deviations >> dp.m.then_laplace(scale=float(deviations.map(2)))
    return Case(
        function=measurement,
        x=[low + 0.25] * size,
        y=[low + 0.5] + [low + 0.25] * (size - 1),
        claim=pure(measurement.map(2)),
        measurement=measurement,
        d_in=2,
    )


def _tree_in_l2() -> Case:
    dp = _library()
    leaves = 64
    tree = dp.t.make_b_ary_tree(
        dp.vector_domain(dp.atom_domain(T=int), size=leaves),
        dp.l2_distance(T=int),
        leaf_count=leaves,
        branching_factor=leaves,
    )
    distance = math.isqrt(leaves)
    measurement = tree >> dp.m.then_gaussian(scale=float(tree.map(distance)))
    return Case(
        function=measurement,
        x=[0] * leaves,
        y=[1] * leaves,
        rho=measurement.map(distance),
        measurement=measurement,
        d_in=distance,
    )


def _tree_overflow() -> Case:
    dp = _library()
    tree = dp.t.make_b_ary_tree(
        dp.vector_domain(dp.atom_domain(T=int), size=2),
        dp.l1_distance(T=int),
        leaf_count=2,
        branching_factor=2,
    )
    measurement = tree >> dp.m.then_laplace(scale=float(tree.map(1)))
    return Case(
        function=measurement,
        x=[2**31 - 1, 0],
        y=[2**31 - 1, 1],
        claim=pure(measurement.map(1)),
        measurement=measurement,
        d_in=1,
    )


def _metric_bounded() -> Case:
    dp = _library()
    space = dp.vector_domain(dp.atom_domain(T=int), size=3)
    cast = dp.t.make_metric_bounded(space, dp.insert_delete_distance())
    respond = dp.m.make_randomized_response(categories=[0, 1, 2, 3], prob=0.5)
    # Each position is answered at random: epsilon adds up over the Hamming distance.
    answers = dp.m.make_user_measurement(
        space,
        cast.output_metric,
        dp.max_divergence(),
        function=lambda values: [respond(value) for value in values],
        privacy_map=lambda distance: distance * respond.map(1),
        TO="Vec<i32>",
    )
    measurement = cast >> answers
    return Case(
        function=measurement,
        x=[0, 1, 2],
        y=[1, 2, 3],
        claim=pure(measurement.map(2)),
        measurement=measurement,
        d_in=2,
    )


def _longest_rise(values: Sequence[int]) -> int:
    """Return the length of the longest nondecreasing subsequence."""
    best: list[int] = []
    for value in values:
        longest = [1 + b for b, v in zip(best, values, strict=False) if v <= value]
        best.append(max(longest, default=1))
    return max(best, default=0)


def _resize_shuffles() -> Case:
    dp = _library()
    size = 30
    resize = dp.t.make_resize(
        dp.vector_domain(dp.atom_domain(T=int)),
        dp.insert_delete_distance(),
        size=size,
        constant=0,
        MO="InsertDeleteDistance",
    )
    # One insertion or deletion changes the length of the longest rise by at most 1.
    rise = dp.t.make_user_transformation(
        resize.output_domain,
        resize.output_metric,
        dp.atom_domain(T=int),
        dp.absolute_distance(T=int),
        function=_longest_rise,
        stability_map=lambda distance: distance,
    )
    measurement = resize >> rise >> dp.m.then_laplace(scale=2.0)
    return Case(
        function=measurement,
        x=[*range(size), 99],
        y=[*range(size)],
        claim=pure(measurement.map(1)),
        measurement=measurement,
        d_in=1,
    )


def _same_sample_twice() -> Case:
    dp = _library()
    random = import_module("random")
    population, sample, rounds = 20, 2, 4
    space = (
        dp.vector_domain(dp.atom_domain(T=int), size=sample),
        dp.symmetric_distance(),
    )
    count = (
        space
        >> dp.t.then_clamp(bounds=(0, 1))
        >> dp.t.then_sum()
        >> dp.m.then_laplace(scale=0.5)
    )
    amplified = dp.c.make_population_amplification(count, population_size=population)
    releases = dp.c.make_composition([amplified] * rounds)

    def release(values: list[int]) -> list[int]:
        return list(releases(random.sample(values, sample)))

    return Case(
        function=release,
        x=[0] * population,
        y=[1] + [0] * (population - 1),
        claim=pure(releases.map(2)),
        measurement=releases,
        d_in=2,
    )


def _frame(  # noqa: PLR0913 (what differs between queries)
    domain: _Made,
    metric: _Made,
    query: _Made,
    bounds: _Made,
    pair: tuple[Mapping[str, object], Mapping[str, object]],
    *,
    column: str | None = None,
    schema: Mapping[str, _Made] | None = None,
    scale: float | None = 1.0,
    measure: _Made = None,
) -> Case:
    """Return the case of a query on a LazyFrame; it releases one number."""
    dp, pl = _library(), import_module("polars")
    settings = {} if scale is None else {"global_scale": scale}
    measurement = dp.m.make_private_lazyframe(
        domain, metric, measure or dp.max_divergence(), query, **settings
    )

    def release(columns: Mapping[str, object]) -> object:
        frame = measurement(pl.LazyFrame(columns, schema=schema)).collect()
        return (frame if column is None else frame[column]).item()

    loss = measurement.map(bounds)
    return Case(
        function=release,
        x=pair[0],
        y=pair[1],
        claim=pure(loss) if measure is None else None,
        rho=None if measure is None else loss,
        measurement=measurement,
        d_in=bounds,
    )


def _null_filled_with_nan() -> Case:
    dp, pl = _library(), import_module("polars")
    query = pl.LazyFrame(schema={"x": pl.Float64}).select(
        pl.col("x").fill_null(_NAN).clip(0.0, 1.0).sum().dp.noise(scale=1)
    )
    column = dp.option_domain(dp.atom_domain(T=float, nan=False))
    domain = dp.with_margin(
        dp.lazyframe_domain([dp.series_domain("x", column)]),
        dp.polars.Margin(max_length=100),
    )
    return _frame(
        domain,
        dp.frame_distance(dp.symmetric_distance()),
        query,
        [dp.polars.Bound(per_group=2)],
        ({"x": [None] + [1.0] * 99}, {"x": [1.0] * 100}),
    )


def _free_count(
    expression: Callable[[ModuleType], _Made],
    columns: Mapping[str, _Made],
    pair: tuple[Mapping[str, object], Mapping[str, object]],
) -> Case:
    """Return the case of a count that is thought to be a public length."""
    dp, pl = _library(), import_module("polars")
    types = {float: pl.Float64, "i64": pl.Int64}
    schema = {name: types[kind] for name, kind in columns.items()}
    domain = dp.with_margin(
        dp.lazyframe_domain(
            [
                dp.series_domain(name, dp.option_domain(dp.atom_domain(T=kind)))
                for name, kind in columns.items()
            ]
        ),
        dp.polars.Margin(max_length=16, invariant="lengths"),
    )
    query = pl.LazyFrame(schema=schema).select(expression(pl).count().dp.noise())
    return _frame(
        domain,
        dp.frame_distance(dp.symmetric_distance()),
        query,
        [dp.polars.Bound(per_group=2)],
        pair,
        schema=schema,
    )


def _cast_to_null() -> Case:
    return _free_count(
        lambda pl: pl.col("x").fill_null(0.0).cast(pl.Int64, strict=False),
        {"x": float},
        ({"x": [_NAN] + [1.0] * 15}, {"x": [1.0] * 16}),
    )


def _cut_to_null() -> Case:
    return _free_count(
        lambda pl: pl.col("x").fill_null(0.0).cut([1.5]),
        {"x": float},
        ({"x": [_NAN] + [1.0] * 15}, {"x": [1.0] * 16}),
    )


def _modulo_to_null() -> Case:
    numbers = list(range(16))
    return _free_count(
        lambda pl: pl.col("n").fill_null(0) % pl.col("m").fill_null(0),
        {"n": "i64", "m": "i64"},
        ({"n": numbers, "m": [0] + [3] * 15}, {"n": numbers, "m": [3] * 16}),
    )


def _codes_in_order_of_appearance() -> Case:
    dp, pl = _library(), import_module("polars")
    query = pl.LazyFrame(schema={"x": pl.Float64}).select(
        pl.col("x").cut([1.0]).to_physical().dp.sum((0, 1), scale=1.0)
    )
    domain = dp.with_margin(
        dp.lazyframe_domain(
            [dp.series_domain("x", dp.atom_domain(T=float, nan=False))]
        ),
        dp.polars.Margin(max_length=101),
    )
    return _frame(
        domain,
        dp.frame_distance(dp.symmetric_distance()),
        query,
        [dp.polars.Bound(per_group=1)],
        ({"x": [0.5] * 100}, {"x": [2.0] + [0.5] * 100}),
        scale=None,
    )


def _group_length() -> Case:
    dp, pl = _library(), import_module("polars")
    schema = {"A": pl.String, "B": pl.Int32}
    query = (
        pl.LazyFrame(schema=schema)
        .group_by("A")
        .agg(pl.col("B").dp.sum((-10, 10), scale=30.0))
    )
    domain = dp.with_margin(
        dp.lazyframe_domain(
            [
                dp.series_domain("A", dp.atom_domain(T=str)),
                dp.series_domain("B", dp.atom_domain(T="i32")),
            ]
        ),
        dp.polars.Margin(by=["A"], max_length=3, max_groups=1, invariant="keys"),
    )
    return _frame(
        domain,
        dp.symmetric_distance(),
        query,
        6,
        ({"A": ["a"] * 3, "B": [10] * 3}, {"A": ["a"] * 3, "B": [-10] * 3}),
        column="B",
        schema=schema,
        scale=None,
    )


def _redefined_column() -> Case:
    dp, pl = _library(), import_module("polars")
    schema = {"id": pl.Int64, "g": pl.Int64}
    counts = (
        pl.LazyFrame(schema=schema)
        .filter(pl.int_range(pl.len()).over("id", "g") < 1)
        .filter(pl.struct("g").rank("dense").over("id") < 101)
        .with_columns(g=pl.lit(0, dtype=pl.Int64))
        .group_by("g")
        .agg(dp.len(scale=30.0))
    )
    query = pl.LazyFrame({"g": [0]}).join(counts, on="g", how="left")
    domain = dp.lazyframe_domain(
        [
            dp.series_domain("id", dp.atom_domain(T="i64")),
            dp.series_domain("g", dp.atom_domain(T="i64")),
        ]
    )
    groups = list(range(100))
    return _frame(
        domain,
        dp.symmetric_id_distance(identifier=pl.col("id")),
        query,
        1,
        (
            {"id": [0] * 100 + [1] * 100, "g": groups * 2},
            {"id": [1] * 100, "g": groups},
        ),
        column="len",
        schema=schema,
        scale=None,
        measure=dp.zero_concentrated_divergence(),
    )


def _odd_row_dropped() -> Case:
    dp, np = _library(), import_module("numpy")
    module = "opendp.extras.sklearn.linear_model._make_private_theil_sen"
    theil_sen = import_module(module)
    measurement = theil_sen.make_private_theil_sen(
        dp.max_divergence(), (0, 100), (0, 100), scale=1.0, candidates_count=2
    )

    def release(rows: list[tuple[float, float]]) -> list[float]:
        return [round(float(v), 3) for v in measurement(np.array(rows))]

    # A line through (50, -1000) passes below the others at both cuts, one through
    # (50, 1000) above them. With one row more, the last row is dropped.
    line = [(float(i), float(i)) for i in range(1, 20)]
    rows = [*line, (50.0, -1000.0)]
    return Case(
        function=release,
        x=rows,
        y=[(50.0, 1000.0), *rows],
        claim=pure(measurement.map(1)),
        measurement=measurement,
        d_in=1,
    )


def _origin_forgotten() -> Case:
    dp, np = _library(), import_module("numpy")
    domain = dp.numpy.array2_domain(
        norm=1.0,
        p=2,
        origin=np.array([10.0, 0.0]),
        num_columns=2,
        size=6,
        nan=False,
        T=float,
    )
    values = dp.sklearn.decomposition.then_private_np_eigendecomposition(
        eigvals_epsilon=1.0, eigvecs_epsilons=[1.0]
    )
    measurement = (domain, dp.symmetric_distance()) >> values
    center = [[10.0, 0.0]] * 5
    return Case(
        function=lambda rows: float(max(measurement(np.array(rows))[0])),
        x=[*center, [9.0, 0.0]],
        y=[*center, [11.0, 0.0]],
        claim=pure(measurement.map(2)),
        measurement=measurement,
        d_in=2,
    )


def _old_measurements() -> ModuleType:
    np = import_module("numpy")
    vars(np)["bool8"] = np.bool_  # a name that numpy 2 dropped
    import_module("opendp.mod").enable_features("contrib", "floating-point")
    return import_module("opendp.meas")


def _checked(measurement: _Made, distance: float, epsilon: float) -> float:
    """Return the epsilon, which the relation of an old measurement affirms."""
    if not measurement.check(distance, epsilon):
        raise ValueError(f"the library does not claim epsilon={epsilon}")
    return epsilon


def _sum_of_bits() -> Case:
    measurements, transformations = _old_measurements(), import_module("opendp.trans")
    size = 10
    bits = transformations.make_sized_bounded_sum(size=size, bounds=(0, 1))
    measurement = bits >> measurements.make_base_geometric(scale=1.0)
    return Case(
        function=measurement,
        x=[0] * size,
        y=[1] + [0] * (size - 1),
        claim=pure(_checked(measurement, 2, 0.01)),
    )


def _imputed() -> Case:
    measurements, transformations = _old_measurements(), import_module("opendp.trans")
    size, bounds = 10, (0, 2)
    measurement = (
        transformations.make_bounded_resize(size=size, bounds=bounds, constant=0)
        >> transformations.make_sized_bounded_sum(size=size, bounds=bounds)
        >> measurements.make_base_geometric(scale=2.0)
    )
    return Case(
        function=measurement,
        x=[2] * size,
        y=[2] * (size - 2),
        claim=pure(_checked(measurement, 2, 1.0)),
    )


def _lie_at_random() -> Case:
    measurements = _old_measurements()
    prob = 0.75
    response = measurements.make_randomized_response_bool(prob=prob)
    epsilon = math.log(prob / (1 - prob)) + 1e-9
    return Case(
        function=lambda bit: int(response(bit)),
        x=False,
        y=True,
        claim=pure(_checked(response, 1, epsilon)),
    )


def _last_bits_of_a_sum() -> Case:
    measurements = _old_measurements()
    laplace = measurements.make_base_laplace(scale=1.0)
    return Case(
        function=laplace, x=0.0, y=1.0, claim=pure(_checked(laplace, 1.0, 1.0 + 1e-9))
    )


def _bug(
    issue: int,
    make: Callable[[], Case],
    summary: str,
    observed: str,
    *,
    version: str = "0.16.0",
    fixed: str | None = None,
    extra: str = "",
) -> Bug:
    return Bug(
        name=f"opendp-{issue}",
        library="opendp",
        version=version,
        url=f"{_ISSUES}{issue}",
        summary=summary,
        fixed=fixed,
        disclosed=True,
        requires=(f"opendp{extra}=={version}",),
        observed=observed,
        make=make,
    )


BUGS = (
    _bug(
        314,
        _sum_of_bits,
        (
            "The stability of a sum of integers is (U - L) / 2, rounded "
            "down: 0 for bits."
        ),
        (
            "sums of bits differ by 1 where the relation affirms epsilon = "
            "0.01; refuted with 2,000 calls in 0.7 s of CPU"
        ),
        version="0.3.0",
        fixed="0.4.0",
    ),
    _bug(
        355,
        _imputed,
        (
            "Resizing imputes as many records as were removed; the relation "
            "counts them once."
        ),
        (
            "ten 2s and eight differ by 4 where the relation affirms a "
            "distance of 2; refuted with 2,000 calls in 0.8 s of CPU"
        ),
        version="0.3.0",
        fixed="0.4.0",
    ),
    _bug(
        414,
        _last_bits_of_a_sum,
        (
            "Laplace noise is added in floating point: low bits of the sum "
            "tell its value."
        ),
        (
            "outputs of 1.0 lack low bits that outputs of 0.0 have; refuted "
            "with 2,000 calls in 0.6 s of CPU"
        ),
        version="0.4.0",
        fixed="0.5.0",
    ),
    _bug(
        480,
        _lie_at_random,
        ("A lie is drawn again, so the truth is told more often than is claimed."),
        (
            "the truth was told in 0.94 of calls where 0.75 is claimed; "
            "refuted with 2,000 calls in 0.7 s of CPU"
        ),
        version="0.4.0",
        fixed="0.5.0",
    ),
    _bug(
        2707,
        _last_bit,
        "The last bit of a bit vector is never flipped.",
        (
            "bit 7 of every output equals the input's; refuted with 2,000 "
            "calls in 0.8 s of CPU"
        ),
        version="0.14.2",
        fixed="0.15.0",
        extra="[polars]",
    ),
    _bug(
        2922,
        _threshold,
        ("A count equal to the threshold is released; delta leaves it out."),
        (
            "a single user's count is released in 0.27 of calls where delta "
            "= 0.099 is claimed; refuted with 20,000 calls in 15.3 s of "
            "CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2923,
        _rounded_mean,
        ("The mean that is subtracted is rounded, which changes every deviation."),
        (
            "the sum of squared deviations moves by 64 where 41 is claimed; "
            "refuted with 2,000 calls in 6.5 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2924,
        _tree_in_l2,
        "The L2 stability of a tree is its height; inner nodes add up many leaves.",
        (
            "64 leaves: the root moves by 64 where a distance of 16 is "
            "claimed; refuted with 2,000 calls in 6.9 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2925,
        _tree_overflow,
        "Sums of inner nodes wrap around at the largest integer.",
        (
            "the root falls from 2147483647 to -2147483648; refuted with "
            "2,000 calls in 1.1 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2926,
        _metric_bounded,
        ("A shift of an ordered list is claimed to change one position of it."),
        (
            "all three answers move where one is claimed; refuted with "
            "2,000 calls in 3.2 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2927,
        _resize_shuffles,
        "Lists of the right length are shuffled, longer ones are not.",
        (
            "the longest rise is 30, or about 8 after the shuffle, where a "
            "change of 2 is claimed; refuted with 2,000 calls in 2 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2930,
        _bit_vector_length,
        ("Vectors of any length are in the domain, and the output shows the length."),
        ("outputs of one byte and of two; refuted with 2,000 calls in 1 s of CPU"),
        extra="[polars]",
    ),
    _bug(
        2933,
        _same_sample_twice,
        (
            "Several amplified measurements of one sample are composed as "
            "if each had its own."
        ),
        (
            "four counts of one sample rise together; refuted with 20,000 "
            "calls in 19.9 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2936,
        _null_filled_with_nan,
        ("Nulls may be filled with NaN in a column that is declared free of it."),
        (
            "sums near 0 with a null, near 100 without; refuted with 2,000 "
            "calls in 4.3 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2938,
        _cast_to_null,
        ("A cast that fails gives null, in a column that is thought to have none."),
        (
            "15 or 16 is released without noise at epsilon = 0; refuted "
            "with 2,000 calls in 4 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2939,
        _cut_to_null,
        ("Cutting a NaN gives null, in a column that is thought to have none."),
        (
            "15 or 16 is released without noise at epsilon = 0; refuted "
            "with 2,000 calls in 4.5 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2940,
        _modulo_to_null,
        ("A number modulo 0 is null, in a column that is thought to have none."),
        (
            "15 or 16 is released without noise at epsilon = 0; refuted "
            "with 2,000 calls in 4.7 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2944,
        _codes_in_order_of_appearance,
        ("Codes of categories follow their order of appearance, so one row moves all."),
        ("sums near 0 and near 100; refuted with 2,000 calls in 4.9 s of CPU"),
        extra="[polars]",
    ),
    _bug(
        2945,
        _group_length,
        ("A group of k rows is thought to change by k; all out and all in are 2 k."),
        (
            "sums of 30 and -30 with noise of scale 30 at a claimed epsilon "
            "of 1; refuted with 2,000 calls in 4.8 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2949,
        _redefined_column,
        ("A column used for truncation may be redefined; its bound is kept."),
        (
            "counts of 200 and 100 with noise of scale 30 at rho = 0.00056; "
            "refuted with 2,000 calls in 9.3 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2950,
        _odd_row_dropped,
        ("An odd last row is dropped, so that one row more removes another."),
        (
            "both medians move by twice what a row is claimed to move them; "
            "refuted with 2,000 calls in 3.4 s of CPU"
        ),
        extra="[polars]",
    ),
    _bug(
        2952,
        _origin_forgotten,
        ("The origin of the domain is forgotten, and norms are not what is claimed."),
        (
            "top eigenvalues near 581 and 621 with noise of scale about 1; "
            "refuted with 500 calls in 12 s of CPU"
        ),
        extra="[polars]",
    ),
)
