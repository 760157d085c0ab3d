"""What OpenDP's noisy max samples, and whether its zCDP map holds: it does.

    python lab/findings/opendp_noisy_max.py     # 40 s

Found on 2026-11-20 with opendp 0.16.0. Issue 2911 (2026-08-26, of 0.15.1, closed) says
that ``make_noisy_max`` is permute-and-flip under every measure, so that rho = eps^2 / 8
is up to four times too small. 0.16.0 is not; nor, by the frequencies of [1, -1], were
0.15.1 and 0.14.2:
  https://github.com/opendp/opendp/issues/2911

The source draws a candidate uniformly and accepts it with probability
exp(-(max - score) / scale). A refused candidate is put back for
``zero_concentrated_divergence``, which is the exponential mechanism (Gumbel noise), and
left out for ``max_divergence``, which is permute-and-flip (exponential noise; the two
laws are one, which the script checks too). ``make_report_noisy_max_gumbel`` has
``max_divergence`` and so no Gumbel noise. Top-k repeats the draw on what is left.
  https://docs.rs/crate/opendp/0.16.0/source/src/measurements/noisy_top_k/mod.rs
  https://docs.rs/crate/opendp/0.16.0/source/src/measurements/noisy_max/mod.rs
The first is the file of v0.15.1, byte for byte:
  https://github.com/opendp/opendp/blob/v0.15.1/rust/src/measurements/noisy_top_k/mod.rs
Faults of documentation only: the pseudocode in the proof has the two branches
exchanged, and reads as the issue says; the docstrings cite permute-and-flip alone.
  https://github.com/opendp/opendp/blob/v0.15.1/rust/src/measurements/noisy_top_k/pseudocode/permute_and_flip.py

With r = d_in for a monotonic metric and 2 d_in otherwise, the map is k r / scale, or
k (r / scale)^2 / 8 in zCDP (https://arxiv.org/abs/2004.07223). Neighbouring scores tilt
the exponential mechanism's law by weights that lie within a factor exp(r / scale). The
Renyi divergence falls and then rises in each weight, so the worst case has two weights
and one number, the mass of the heavier, over which the script maximises. A search over
scores finds no more. Permute-and-flip under the same map would be a violation.

OpenDP draws from the system's entropy: the p-values differ from run to run.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from itertools import permutations, product
from typing import Any, TypeAlias

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

Array: TypeAlias = NDArray[np.float64]
Law: TypeAlias = Callable[[Array], Array]

CALLS = 2000
SCORES: list[list[int]] = [[1, -1], [0, 0, -1, 2], [3, 2, 2, 0, -1]]
SCALES = (0.5, 0.7, 1.0, 2.0, 3.0)
ORDERS = np.sort(np.append(1 + np.geomspace(1e-4, 63, 119), 2.0))
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def gumbel(scores: Array) -> Array:
    """Return the law of the exponential mechanism, for scores over the scale."""
    return np.asarray(special.softmax(scores, axis=-1))


def permute_and_flip(scores: Array) -> Array:
    """Return the law of permute-and-flip, exact for up to 16 scores."""
    accepted = np.exp(scores - scores.max(-1, keepdims=True))
    refused = 1 - (NODES[:, None] + 1) / 2 * accepted[..., None, :]
    others = refused.prod(-1, keepdims=True) / refused
    return np.asarray(accepted * np.einsum("t,...ti->...i", WEIGHTS / 2, others))


def exponential_noise(scores: Array) -> Array:
    """Return the law of the largest score with exponential noise, by quadrature."""
    below = scores.max() - scores

    def density(over: float, i: int) -> float:
        others = np.delete(1 - np.exp(-(over + below)), i)
        return float(np.exp(-(over + below[i])) * others.prod())

    every = range(len(below))
    return np.array([integrate.quad(density, 0, 60, (i,))[0] for i in every])


def top(law: Law, k: int) -> Law:
    """Return the law of ``k`` draws in turn, in the order of ``permutations``."""

    def of(scores: Array) -> Array:
        chances: list[Array] = []

        def draw(left: list[int], chance: Array) -> None:
            if len(left) == scores.shape[-1] - k:
                chances.append(chance)
                return
            drawn = law(scores[..., left])
            for place in range(len(left)):
                draw(left[:place] + left[place + 1 :], chance * drawn[..., place])

        draw(list(range(scores.shape[-1])), np.ones(scores.shape[:-1]))
        return np.stack(chances, -1)

    return of


def renyi(p: Array, q: Array) -> Array:
    """Return D_alpha(p, q) for every order, in a last dimension."""
    log_p, log_q = np.log(p)[..., None], np.log(q)[..., None]
    terms = log_q + ORDERS * (log_p - log_q)
    return np.asarray(special.logsumexp(terms, axis=-2) / (ORDERS - 1))


def rho_between(p: Array, q: Array) -> Array:
    """Return the smallest rho with D_alpha <= alpha rho at every order."""
    return np.asarray((renyi(p, q) / ORDERS).max(-1))


def largest_loss(p: Array, q: Array) -> Array:
    """Return the largest log-ratio of two laws, in either direction."""
    return np.asarray(np.abs(np.log(p) - np.log(q)).max(-1))


def worst_of_gumbel(epsilon: float) -> float:
    """Return the exact worst rho of the exponential mechanism, of range epsilon."""

    def negative(logit: float) -> float:
        heavy = special.expit(np.array([logit, -logit]))
        tilted = special.expit(np.array([logit + epsilon, -logit - epsilon]))
        return -float(max(rho_between(tilted, heavy), rho_between(heavy, tilted)))

    grid = np.linspace(-12 - epsilon, 12, 400)
    start = min(grid, key=negative)
    around = start - 0.1, start + 0.1
    found = optimize.minimize_scalar(negative, bounds=around, method="bounded")
    return float(-found.fun)


@cache
def worst_of_search(
    law: Law, epsilon: float, loss: Callable[[Array, Array], Array], *, k: int = 1
) -> float:
    """Return the largest loss that a search over neighbouring scores finds."""
    rng, best = np.random.default_rng(0), 0.0
    drawn = top(law, k) if k > 1 else law
    for count in range(k + 1, 7 if k == 1 else 6):
        draws = 2000 if k == 1 else 500
        spread = rng.choice([0, 0.3, 2, 5], (draws, 1))
        scores = spread * rng.normal(size=(draws, count))
        moved = epsilon * rng.integers(0, 2, (draws, count))
        inside = rng.random(draws) < 0.2
        moved[inside] = epsilon * rng.random((int(inside.sum()), count))
        # The law ignores a common shift, so that moves in [0, range] are all there is.
        found = loss(drawn(scores), drawn(scores + moved))
        for i in np.argsort(found)[-2:]:

            def negative(x: Array, move: Array = moved[i]) -> float:
                return -float(loss(drawn(x), drawn(x + move)))

            polished = optimize.minimize(
                negative, scores[i], method="Nelder-Mead", options={"maxfev": 200}
            )
            best = max(best, float(found[i]), -float(polished.fun))
    return best


def space(*, monotonic: bool = False) -> tuple[Any, Any]:
    """Return the space of vectors of integers, at L-infinity distance."""
    domain = dp.vector_domain(dp.atom_domain(T=int))
    return domain, dp.linf_distance(T=int, monotonic=monotonic)


def frequencies(measurement: Any, scores: Sequence[int], k: int) -> Array:  # noqa: ANN401
    """Return how often each outcome came up, in the order of ``permutations``."""
    outcomes = (measurement(scores) for _ in range(CALLS))
    counts = Counter(tuple(x) if k > 1 else (x,) for x in outcomes)
    return np.array([counts[x] for x in permutations(range(len(scores)), k)], float)


def chi_square(observed: Array, chances: Array) -> tuple[float, int]:
    """Return the statistic and its degrees, rare outcomes (below 5) taken as one."""
    expected = CALLS * chances
    rare = expected < 5
    seen = np.append(observed[~rare], observed[rare].sum())
    due = np.append(expected[~rare], expected[rare].sum())
    kept = due > 1
    statistic = ((seen - due)[kept] ** 2 / due[kept]).sum()
    return float(statistic), int(kept.sum()) - 1


def print_fit(name: str, measurement: Any, scale: float, k: int = 1) -> None:  # noqa: ANN401
    """Print how two laws fit what a measurement returns, over all score vectors."""
    laws = {"Gumbel": gumbel, "permute-and-flip": permute_and_flip}
    sums = dict.fromkeys(laws, (0.0, 0))
    for scores in SCORES if k == 1 else SCORES[1:]:
        observed = frequencies(measurement, scores, k)
        for label, law in laws.items():
            chances = top(law, k)(np.array(scores) / scale)
            statistic, degrees = chi_square(observed, chances)
            sums[label] = sums[label][0] + statistic, sums[label][1] + degrees
    fits = (
        f"{label} chi2 {total:7.1f} on {df:2d}, p {stats.chi2.sf(total, df):.1g}"
        for label, (total, df) in sums.items()
    )
    print(f"  {name:23} scale {scale:3}  " + ";  ".join(fits))


def print_fits() -> None:
    """Print the fit of the two laws, for both measures and several scales."""
    print(f"Fit of {CALLS} calls for each of {SCORES}")
    measures = {
        "max_divergence": dp.max_divergence(),
        "zero_concentrated": dp.zero_concentrated_divergence(),
    }
    for (name, measure), scale in product(measures.items(), SCALES):
        print_fit(name, dp.m.make_noisy_max(*space(), measure, scale=scale), scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = dp.m.make_report_noisy_max_gumbel(*space(), scale=1.0)
    print_fit("report_noisy_max_gumbel", old, 1.0)
    for name, measure in measures.items():
        pair = dp.m.make_noisy_top_k(*space(), measure, k=2, scale=1.0)
        print_fit(f"{name}, k=2", pair, 1.0, k=2)
    apart = max(
        float(np.abs(permute_and_flip(x) - exponential_noise(x)).max())
        for x in (np.array(scores) / s for scores in SCORES for s in SCALES)
    )
    print(f"Exponential noise and permute-and-flip differ by at most {apart:.0e}")


def print_divergences() -> None:
    """Print exact worst cases beside the claims of the maps, at d_in = 1."""
    print("Worst case at d_in = 1 (rho: the largest D_alpha / alpha, alpha up to 64)")
    print("  metric     scale  rho claimed  exact  search  share | if permute-and-flip")
    for monotonic, scale in product((False, True), (0.5, 1.0, 2.0)):
        spaces, name = space(monotonic=monotonic), "monotonic" if monotonic else "any"
        concentrated = dp.zero_concentrated_divergence()
        rho = dp.m.make_noisy_max(*spaces, concentrated, scale=scale).map(1)
        pure = dp.m.make_noisy_max(*spaces, dp.max_divergence(), scale=scale).map(1)
        exact = worst_of_gumbel(pure)
        search = worst_of_search(gumbel, pure, rho_between)
        other = worst_of_search(permute_and_flip, pure, rho_between)
        loss = worst_of_search(permute_and_flip, pure, largest_loss)
        print(
            f"  {name:9}  {scale:5}  {rho:11.4f}  {exact:.4f}  {search:.4f}  "
            f"{exact / rho:.3f} | {other:.4f}, {other / rho:.2f} times; "
            f"pure: eps claimed {pure:.3f}, found {loss:.3f}"
        )
    print("Top-k at d_in = 1, any metric")
    for k, scale in product((2, 3), (1.0, 2.0)):
        concentrated = dp.zero_concentrated_divergence()
        rho = dp.m.make_noisy_top_k(*space(), concentrated, k=k, scale=scale).map(1)
        pure = dp.m.make_noisy_top_k(*space(), dp.max_divergence(), k=k, scale=scale)
        search = worst_of_search(gumbel, 2 / scale, rho_between, k=k)
        loss = worst_of_search(permute_and_flip, 2 / scale, largest_loss, k=k)
        print(
            f"  k={k} scale {scale}: rho claimed {rho:.4f}, found {search:.4f}; "
            f"pure: eps claimed {pure.map(1):.3f}, found {loss:.3f}"
        )


def print_pair() -> None:
    """Print what the pair of the issue shows under either law."""
    print("The issue's pair: [0, 0] and [1, -1] at scale 1")
    x, y = np.array([0.0, 0.0]), np.array([1.0, -1.0])
    for label, law in (("Gumbel", gumbel), ("permute-and-flip", permute_and_flip)):
        two = renyi(law(x), law(y))[ORDERS == 2].item()
        most = max(rho_between(law(x), law(y)), rho_between(law(y), law(x)))
        print(f"  {label}: D_2 {two:.3f}, 1 claimed; rho {most:.3f}, 0.5 claimed")


def print_rounding() -> None:
    """Print whether the map is ever below its formula in exact arithmetic."""
    rng, below = np.random.default_rng(1), 0
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    metric, measure = dp.linf_distance(T=float), dp.zero_concentrated_divergence()
    for d_in, scale in rng.lognormal(0, 3, (2000, 2)).tolist():
        claimed = dp.m.make_noisy_max(domain, metric, measure, scale=scale).map(d_in)
        below += Fraction(claimed) < (2 * Fraction(d_in) / Fraction(scale)) ** 2 / 8
    print(f"Maps below the exact (2 d_in / scale)^2 / 8: {below} of 2000")


if __name__ == "__main__":
    dp.enable_features("contrib")
    print(f"opendp {version('opendp')}")
    print_fits()
    print_divergences()
    print_pair()
    print_rounding()
