"""Correct mechanisms in plain Python: each kind of claim, the claim exact or nearly.

Continuous noise is rounded far above the precision of its numbers, which is all that
can be told of it.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dpaudit import Adjacency, GaussianDP, PrivacyCurve
from dpaudit_lab.real_bugs.cases import Case, Control, approx, pure

__all__ = ["CONTROLS"]

_Rng: TypeAlias = np.random.Generator
_Plain: TypeAlias = Callable[[], Case]


def _geometric(rng: _Rng, scale: float) -> int:
    """Return noise with probabilities proportional to exp(-|k| / scale)."""
    stop = -math.expm1(-1 / scale)
    return int(rng.geometric(stop)) - int(rng.geometric(stop))


def _randomised_response(epsilon: float, answers: int) -> _Plain:
    def make() -> Case:
        rng = np.random.default_rng()
        truth = math.exp(epsilon) / (math.exp(epsilon) + answers - 1)

        def answer(value: int) -> int:
            if rng.random() < truth:
                return value
            return (value + int(rng.integers(1, answers))) % answers

        return Case(function=answer, x=0, y=1, claim=pure(epsilon))

    return make


def _geometric_count(epsilon: float, size: int) -> _Plain:
    def make() -> Case:
        rng = np.random.default_rng()
        return Case(
            function=lambda rows: len(rows) + _geometric(rng, 1 / epsilon),
            x=[1] * size,
            y=[1] * (size + 1),
            claim=pure(epsilon),
        )

    return make


def _rounded_laplace(epsilon: float) -> _Plain:
    def make() -> Case:
        rng = np.random.default_rng()
        return Case(
            function=lambda value: round(value + rng.laplace(scale=1 / epsilon), 2),
            x=0.0,
            y=1.0,
            claim=pure(epsilon),
        )

    return make


def _histogram() -> Case:
    rng = np.random.default_rng()

    def release(values: list[int]) -> list[int]:
        return [values.count(k) + _geometric(rng, 2.0) for k in range(4)]

    return Case(function=release, x=[0, 1, 2, 3], y=[1, 1, 2, 3], claim=pure(1.0))


def _exponential() -> Case:
    rng = np.random.default_rng()

    def choose(scores: list[float]) -> int:
        weights = np.exp(0.5 * np.array(scores))
        return int(rng.choice(len(scores), p=weights / weights.sum()))

    return Case(
        function=choose, x=[0.0, 0.0, 0.0], y=[1.0, -1.0, -1.0], claim=pure(1.0)
    )


def _permute_and_flip() -> Case:
    rng = np.random.default_rng()

    def choose(scores: list[float]) -> int:
        best = max(scores)
        for index in rng.permutation(len(scores)):
            if rng.random() < math.exp(0.5 * (scores[index] - best)):
                return int(index)
        raise AssertionError  # the best is always taken

    return Case(function=choose, x=[0.0, 0.0], y=[1.0, -1.0], claim=pure(1.0))


def _noisy_max() -> Case:
    rng = np.random.default_rng()

    def choose(scores: list[float]) -> int:
        return int(np.argmax(np.array(scores) + rng.laplace(scale=2.0, size=3)))

    return Case(
        function=choose, x=[0.0, 0.0, 0.0], y=[1.0, -1.0, -1.0], claim=pure(1.0)
    )


def _above_threshold() -> Case:
    rng = np.random.default_rng()

    def first(queries: list[float]) -> int:
        threshold = 1.0 + rng.laplace(scale=2.0)
        for index, query in enumerate(queries):
            if query + rng.laplace(scale=4.0) >= threshold:
                return index
        return len(queries)

    return Case(function=first, x=[0.0] * 4, y=[0.0, 0.0, 0.0, 1.0], claim=pure(1.0))


def _unary(epsilon: float) -> _Plain:
    def make() -> Case:
        rng = np.random.default_rng()
        other = 1 / (math.exp(epsilon) + 1)

        def answer(value: int) -> list[int]:
            chances = [0.5 if k == value else other for k in range(4)]
            return [int(rng.random() < chance) for chance in chances]

        return Case(function=answer, x=0, y=1, claim=pure(epsilon))

    return make


def _sampled_response() -> Case:
    rng = np.random.default_rng()
    rate, truth = 0.25, math.e**2 / (1 + math.e**2)

    def answer(bits: list[int]) -> int:
        bit = bits[0] if rng.random() < rate else 0
        return bit if rng.random() < truth else 1 - bit

    epsilon = math.log1p(rate * math.expm1(2.0))
    return Case(function=answer, x=[0], y=[1], claim=pure(epsilon))


def _many_answers() -> Case:
    rng = np.random.default_rng()
    truth = math.e / (1 + math.e)

    def answers(bits: list[int]) -> int:
        return sum(bit if rng.random() < truth else 1 - bit for bit in bits)

    return Case(function=answers, x=[0] * 10, y=[1] + [0] * 9, claim=pure(1.0))


def _two_releases() -> Case:
    rng = np.random.default_rng()

    def release(value: int) -> tuple[int, int]:
        return value + _geometric(rng, 2.0), value + _geometric(rng, 2.0)

    return Case(function=release, x=0, y=1, claim=pure(1.0))


def _constant() -> Case:
    return Case(function=lambda _value: 1, x=0, y=1, claim=pure(0.0))


def _rarely_open(epsilon: float, delta: float) -> _Plain:
    def make() -> Case:
        rng = np.random.default_rng()
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))

        def answer(bit: int) -> int:
            if rng.random() < delta:
                return 2 + bit
            return bit if rng.random() < truth else 1 - bit

        return Case(function=answer, x=0, y=1, claim=approx(epsilon, delta))

    return make


def _gaussian_pair(scale: float, delta: float) -> _Plain:
    def make() -> Case:
        rng = np.random.default_rng()
        epsilon = GaussianDP(mu=1 / scale).epsilon_at(delta)
        return Case(
            function=lambda value: round(value + scale * float(rng.normal()), 3),
            x=0.0,
            y=1.0,
            claim=approx(epsilon, delta),
        )

    return make


def _stable_key() -> Case:
    rng = np.random.default_rng()
    epsilon, threshold = 1.0, 2
    ratio = math.exp(-epsilon)
    # Of a single user's count: that 1 and the noise exceed the threshold.
    delta = ratio**threshold / (1 + ratio)

    def release(users: list[str]) -> int:
        counts = (users.count(user) for user in set(users))
        return sum(count + _geometric(rng, 1 / epsilon) > threshold for count in counts)

    return Case(function=release, x=["user0"], y=[], claim=approx(epsilon, delta))


def _truncated() -> Case:
    rng = np.random.default_rng()
    epsilon, most = 1.0, 5
    noise = np.arange(-most, most + 1)
    weights = np.exp(-epsilon * np.abs(noise))
    chances = weights / weights.sum()

    def release(value: int) -> int:
        return value + int(rng.choice(noise, p=chances))

    return Case(
        function=release, x=0, y=1, claim=approx(epsilon, float(chances[0]) + 1e-12)
    )


def _gaussian(mu: float) -> _Plain:
    def make() -> Case:
        rng = np.random.default_rng()
        return Case(
            function=lambda value: round(mu * value + float(rng.normal()), 3),
            x=0.0,
            y=1.0,
            claim=GaussianDP(mu=mu, adjacency=Adjacency.REPLACE_ONE),
        )

    return make


def _gaussian_vector() -> Case:
    rng = np.random.default_rng()

    def release(row: list[float]) -> list[float]:
        return [round(float(v), 3) for v in np.array(row) + rng.normal(size=len(row))]

    return Case(
        function=release,
        x=[0.0] * 4,
        y=[0.5] * 4,
        claim=GaussianDP(mu=1.0, adjacency=Adjacency.REPLACE_ONE),
    )


def _zcdp(rho: float) -> _Plain:
    def make() -> Case:
        rng = np.random.default_rng()
        scale = 1 / math.sqrt(2 * rho)
        return Case(
            function=lambda value: round(value + scale * float(rng.normal()), 3),
            x=0.0,
            y=1.0,
            rho=rho,
        )

    return make


def _zcdp_of_answers() -> Case:
    rng = np.random.default_rng()
    epsilon = 1.0
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return Case(
        function=lambda bit: bit if rng.random() < truth else 1 - bit,
        x=0,
        y=1,
        rho=epsilon**2 / 2,
    )


def _zcdp_of_choice() -> Case:
    case = _exponential()
    return Case(function=case.function, x=case.x, y=case.y, rho=1.0**2 / 8)


def _curve(epsilons: list[float], deltas: list[float]) -> PrivacyCurve:
    return PrivacyCurve(
        epsilons=np.array(epsilons),
        deltas=np.array(deltas),
        adjacency=Adjacency.REPLACE_ONE,
    )


def _curve_of_laplace() -> Case:
    rng = np.random.default_rng()
    epsilons = np.linspace(0.0, 1.0, 21)
    return Case(
        function=lambda value: round(value + rng.laplace(), 2),
        x=0.0,
        y=1.0,
        claim=_curve(epsilons.tolist(), (-np.expm1((epsilons - 1) / 2)).tolist()),
    )


def _curve_of_renyi() -> Case:
    """Return a Gaussian with what its Rényi divergences imply at each epsilon."""
    rng = np.random.default_rng()
    orders = 1 + np.geomspace(0.01, 1000, 400)
    epsilons = np.linspace(0.5, 6.0, 40)
    logs = (
        (orders - 1) * (orders / 2 - epsilons[:, None])
        - np.log(orders)
        + (orders - 1) * np.log1p(-1 / orders)
    )
    deltas = np.minimum.accumulate(np.minimum(1.0, np.exp(logs.min(axis=1))))
    return Case(
        function=lambda value: round(value + float(rng.normal()), 3),
        x=0.0,
        y=1.0,
        claim=_curve(epsilons.tolist(), deltas.tolist()),
    )


def _curve_of_rarely_open() -> Case:
    case = _rarely_open(1.0, 0.05)()
    at_zero = 0.05 + 0.95 * math.tanh(0.5)
    return Case(
        function=case.function,
        x=case.x,
        y=case.y,
        claim=_curve([0.0, 1.0], [at_zero, 0.05]),
    )


_MADE: tuple[tuple[str, _Plain], ...] = (
    ("response-0.5", _randomised_response(0.5, 2)),
    ("response-1", _randomised_response(1.0, 2)),
    ("response-4", _randomised_response(4.0, 2)),
    ("response-of-5-answers", _randomised_response(1.0, 5)),
    ("geometric-count", _geometric_count(1.0, 3)),
    ("geometric-count-of-none", _geometric_count(0.5, 0)),
    ("rounded-laplace", _rounded_laplace(1.0)),
    ("histogram", _histogram),
    ("exponential", _exponential),
    ("permute-and-flip", _permute_and_flip),
    ("noisy-max", _noisy_max),
    ("above-threshold", _above_threshold),
    ("unary-encoding", _unary(1.0)),
    ("sampled-response", _sampled_response),
    ("sum-of-responses", _many_answers),
    ("two-releases", _two_releases),
    ("constant", _constant),
    ("rarely-open", _rarely_open(1.0, 0.01)),
    ("rarely-open-often", _rarely_open(0.5, 0.2)),
    ("gaussian-at-1e-5", _gaussian_pair(2.0, 1e-5)),
    ("gaussian-at-0.1", _gaussian_pair(1.0, 0.1)),
    ("stable-key", _stable_key),
    ("truncated-geometric", _truncated),
    ("gaussian-mu-1", _gaussian(1.0)),
    ("gaussian-mu-0.25", _gaussian(0.25)),
    ("gaussian-vector", _gaussian_vector),
    ("gaussian-rho-0.5", _zcdp(0.5)),
    ("gaussian-rho-0.02", _zcdp(0.02)),
    ("response-in-zcdp", _zcdp_of_answers),
    ("exponential-in-zcdp", _zcdp_of_choice),
    ("laplace-curve", _curve_of_laplace),
    ("renyi-curve", _curve_of_renyi),
    ("rarely-open-curve", _curve_of_rarely_open),
)

CONTROLS = tuple(Control(name=f"plain-{name}", make=make) for name, make in _MADE)
