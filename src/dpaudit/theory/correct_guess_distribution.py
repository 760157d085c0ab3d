"""The distribution of V, the number of correct guesses, before anything is run.

A guesser guesses the ``k`` coins about which the output reveals most. If each of ``n``
elements passes through its own copy of one channel (a local mechanism), their absolute
losses are i.i.d., and given the output the coins are independent, each guessed
correctly with probability ``p(|l|)``, ``p(t) = e^t / (1 + e^t)``.

Give every element a uniform rank: the quantile of its loss, or, at an atom of the
distribution, a uniform point of the quantiles that the atom covers. A higher rank never
means a smaller loss, and elements of equal loss are guessed correctly with equal
probability, so guessing the ``k`` highest ranks is guessing the ``k`` largest losses
with random tie-breaking. Let ``q`` be one minus the (k+1)-th highest rank; it has the
distribution Beta(k+1, n-k). Given ``q`` the ``k`` ranks above are independent and
uniform on the upper fraction ``q``, hence each guess is correct independently with the
mean probability

    a(q) = 1/2 + int_0^inf min(1, P[|l| >= t] / q) dp(t),

and V is a mixture of Bin(k, a(q)). With ``k = n`` it is Bin(n, a(1)), exactly. Silent
elements, about which the output reveals nothing, come last. Guesses about them do not
depend on the output (they are all +1, say), and so are correct like fair coin flips,
even if the output makes those coins dependent, as a parity does.

The mixture is computed by quadrature in ``q``, split at the kinks of ``a``. Masses are
accurate to at least 1e-8, as doubling the number of points shows; typically to 1e-12.

If one output depends on a group of elements together, such as a count, the group's
coins are dependent given the output and the loss distribution does not determine V;
``simulated_counts`` runs the mechanism instead.

Reference: for the mixture, Xiang, Wang and Wang, "Tight privacy audit in one run",
https://arxiv.org/abs/2509.08704.
"""

from itertools import pairwise
from math import inf, log
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.guessers import Guesser, Submission
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.loss_distribution import (
    DiscreteLoss,
    Loss,
    LossDistribution,
    OutputComponent,
)
from dpaudit.stats.binomial import masses
from dpaudit.theory.integrals import tail_average

__all__ = [
    "correct_guess_distribution",
    "determines_correct_guesses",
    "simulated_counts",
]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)

_SPREAD = 10.0  # standard deviations of a binomial that are kept; 1e-20 lies beyond
_TAIL = 1e-14  # mass of the distribution of q omitted on either side
_COARSE = np.polynomial.legendre.leggauss(32)
_FINE = np.polynomial.legendre.leggauss(200)


def correct_guess_distribution(
    losses: LossDistribution, *, guesses: int
) -> NDArray[np.float64]:
    """Return the probabilities of 0, 1, ..., ``guesses`` correct best guesses.

    Args:
        losses: The loss distribution, in groups of one element each. A larger group is
            allowed if its coins are known with certainty, as they are then
            conditionally independent.
        guesses: How many coins are guessed.

    Raises:
        InvalidInputError: Several elements share a group and are not known for certain.

    Example:
        >>> sure = DiscreteLoss(values=np.array([np.inf]), probabilities=np.ones(1))
        >>> # name and shame
        >>> named = OutputComponent(probability=1.0, groups=1, size=1, loss=sure)
        >>> losses = LossDistribution(elements=5, kinds=(named,))
        >>> correct_guess_distribution(losses, guesses=2)
        array([0. , 0.5, 0.5])
    """
    _validate.whole_number("guesses", guesses, least=1)
    if guesses > losses.elements:
        raise InvalidInputError(
            f"there are only {losses.elements} elements to guess, got guesses={guesses}"
        )
    rest = max(0.0, 1 - sum(kind.probability for kind in losses.kinds))
    distribution = _spread_out([(rest, 0.5)], guesses)
    for kind in losses.kinds:
        known = min(_independent(kind), guesses)
        exposed = _spread_out(_accuracies(kind.loss, _independent(kind), known), known)
        silent = _spread_out([(1.0, 0.5)], guesses - known)
        distribution += kind.probability * _convolved(exposed, silent)
    distribution /= distribution.sum()
    return distribution


def determines_correct_guesses(losses: LossDistribution) -> bool:
    """Return whether the losses determine the distribution of correct guesses.

    Example:
        >>> sure = DiscreteLoss(values=np.array([np.inf]), probabilities=np.ones(1))
        >>> # all or nothing
        >>> known = OutputComponent(probability=0.5, groups=1, size=9, loss=sure)
        >>> determines_correct_guesses(LossDistribution(elements=9, kinds=(known,)))
        True
    """
    return all(map(_is_independent, losses.kinds))


def simulated_counts(
    mechanism: Mechanism[O],
    guesser: Guesser[O],
    pairs: Pairs,
    *,
    elements: int,
    guesses: int,
    runs: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return how often 0, 1, ..., ``guesses`` were correct in that many runs.

    Divided by ``runs`` it estimates the distribution of V. The largest error of its
    cumulative probabilities exceeds ``sqrt(ln(2 / b) / (2 runs))`` with probability at
    most ``b`` (Dvoretzky, Kiefer and Wolfowitz, with Massart's constant).

    Args:
        mechanism: The audited mechanism.
        guesser: Guesses all at once, ``guesses`` at most; one not made is wrong.
        pairs: The two records of each element.
        elements: Number of elements.
        guesses: Committed number of guesses.
        runs: Number of independent runs.
        rng: Source of coins and of the mechanism's randomness.

    Example:
        >>> from dpaudit.game.guessers import Extremes
        >>> class Silent:
        ...     def run(self, data, rng):
        ...         return np.zeros(9)
        >>> guesser = Extremes(score=np.asarray, top=2, bottom=0)
        >>> simulated_counts(Silent(), guesser, Pairs(x=0, y=1), elements=9,
        ...     guesses=2, runs=1000, rng=np.random.default_rng(1))
        array([243, 500, 257])
    """
    _validate.whole_number("runs", runs, least=1)
    pairs.check(elements)
    counts = np.zeros(guesses + 1, np.int64)
    for _ in range(runs):
        bits = rng.integers(0, 2, size=elements, dtype=np.uint8)
        made = guesser.guess(mechanism.run(pairs.choose(bits), rng))
        _check_number(made, guesses)
        truth = 2 * bits[made.index].astype(np.int8) - 1
        counts[np.count_nonzero(made.guess == truth)] += 1
    return counts


def _check_number(made: Submission, guesses: int) -> None:
    named = made.index[made.guess != 0]
    if len(named) > guesses or len(np.unique(named)) < len(named):
        raise InvalidInputError(
            f"the guesser must name at most guesses={guesses} coins, each once, but "
            f"named {len(named)}"
        )


def _is_independent(kind: OutputComponent) -> bool:
    return kind.size == 1 or kind.loss.tail(inf) == 1


def _independent(kind: OutputComponent) -> int:
    """Return the number of elements with a loss; refuse if they are dependent."""
    if not _is_independent(kind):
        raise InvalidInputError(
            f"{kind.size} elements share a group: given an output their coins are "
            "dependent, and the law of the losses does not tell how many guesses are "
            "right; use simulated_counts(mechanism, guesser, ...)"
        )
    return kind.groups * kind.size


def _accuracies(loss: Loss, n: int, k: int) -> list[tuple[float, float]]:
    """Return weights and accuracies of the mixture of binomials that V follows."""
    if k == n:
        return [(1.0, _accuracy(loss, 1.0))]
    ends = _ends(loss, n, k)
    points, weights = [], []
    for a, b in pairwise(ends):
        nodes, node_weights = _FINE if b - a > (ends[-1] - ends[0]) / 20 else _COARSE
        q = (a + b) / 2 + (b - a) / 2 * nodes
        log_density = k * np.log(q) + (n - k - 1) * np.log1p(-q)
        points.append(q)
        weights.append(np.log(node_weights * (b - a)) + log_density)
    share = special.softmax(np.concatenate(weights))  # the density's constant cancels
    kept = [(w, q) for w, q in zip(share, np.concatenate(points), strict=True) if w]
    return [(float(w), _accuracy(loss, float(q))) for w, q in kept]


def _ends(loss: Loss, n: int, k: int) -> list[float]:
    """Return where to split the range of q: its ends and the kinks of ``a``."""
    low = float(special.betaincinv(k + 1, n - k, _TAIL))
    high = float(special.betainccinv(k + 1, n - k, _TAIL))
    if isinstance(loss, DiscreteLoss):
        bends = np.cumsum(loss.probabilities[::-1])
    else:
        edges = np.array(loss.breaks)
        bends = loss.tail_at(np.concatenate([edges, np.nextafter(edges, inf)]))
    return [low, *np.unique(bends[(bends > low) & (bends < high)]).tolist(), high]


def _accuracy(loss: Loss, q: float) -> float:
    """Return the mean probability of a correct guess in the upper fraction q."""
    if isinstance(loss, DiscreteLoss):
        above = tail_average(loss, lambda tails: np.minimum(1.0, tails / q))
        return min(1.0, 0.5 + 0.5 * above)
    # min(1, tail / q) has a kink where the tail is q; the integral is split there.
    low, high = 0.0, loss.breaks[-1]
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if loss.tail(middle) >= q else (low, middle)
    above = tail_average(loss, lambda tails: tails / q, low=low)
    return min(1.0, float(special.expit(low) + special.expit(-low) * above))


def _spread_out(mixture: list[tuple[float, float]], k: int) -> NDArray[np.float64]:
    """Return the masses of a mixture of Bin(k, accuracy)."""
    distribution = np.zeros(k + 1)
    for weight, a in mixture:
        if a >= 1 or k == 0:
            distribution[k] += weight
            continue
        low, mass = masses(k, log(a) - log(1 - a), spread=_SPREAD)
        distribution[low : low + len(mass)] += weight * mass
    return distribution


def _convolved(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distribution of a sum, computed only where both have mass."""
    distribution = np.zeros(len(a) + len(b) - 1)
    i, j = np.flatnonzero(a), np.flatnonzero(b)
    part = np.convolve(a[i[0] : i[-1] + 1], b[j[0] : j[-1] + 1])
    distribution[i[0] + j[0] : i[0] + j[0] + len(part)] = part
    return distribution
