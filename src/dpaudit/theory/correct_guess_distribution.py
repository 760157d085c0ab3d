"""The distribution of V, the number of right guesses, before anything is run.

A guesser names the ``k`` coins that the output says most about. If each of ``n``
elements meets its own copy of one channel (a local mechanism), their sizes of loss are
independent with one distribution, and given the output the coins are independent, each
guessed rightly with probability ``p(|l|)``, ``p(t) = e^t / (1 + e^t)``.

Give every element a uniform rank: the quantile of its loss, and where the distribution
has an atom a uniform point of the quantiles that the atom covers. A higher rank never
means a smaller loss, and elements with one loss are guessed rightly with one
probability, so that guessing the ``k`` highest ranks is guessing the ``k`` largest
losses, ties broken by lot. Let ``q`` be one minus the (k+1)-th highest rank; it has the
distribution Beta(k+1, n-k). Given ``q`` the ``k`` ranks above are independent and
uniform on the upper fraction ``q``, hence each guess is right independently with the
mean probability

    a(q) = 1/2 + int_0^inf min(1, P[|l| >= t] / q) dp(t),

and V is a mixture of Bin(k, a(q)). With ``k = n`` it is Bin(n, a(1)), exactly. Silent
elements, about which the output says nothing, come last. Guesses about them do not
depend on the output (they are all +1, say), and so are right like tosses of fair coins,
even if the output ties those coins to each other, as a parity does.

The mixture is a quadrature in ``q``, split where ``a`` bends. Masses are right to 1e-8
at least, as a doubled number of points shows; typically to 1e-12.

Where one output speaks of a group of elements at once, such as a count, the group's
coins are dependent given the output and the distribution of the losses does not
determine V; ``simulated_counts`` runs the mechanism instead.

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
_TAIL = 1e-14  # of the distribution of q that is left out on either side
_COARSE = np.polynomial.legendre.leggauss(32)
_FINE = np.polynomial.legendre.leggauss(200)


def correct_guess_distribution(
    losses: LossDistribution, *, guesses: int
) -> NDArray[np.float64]:
    """Return the probability of 0, 1, ..., ``guesses`` right among the best guesses.

    Args:
        losses: The distribution of the losses, in groups of one element each. A group
            of several is welcome if its coins are known for sure, for then they cannot
            depend on each other.
        guesses: How many coins are guessed.

    Raises:
        InvalidInputError: Several elements share a group and are not known for sure.

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
    found = _spread_out([(rest, 0.5)], guesses)
    for kind in losses.kinds:
        known = min(_independent(kind), guesses)
        spoken = _spread_out(_accuracies(kind.loss, _independent(kind), known), known)
        silent = _spread_out([(1.0, 0.5)], guesses - known)
        found += kind.probability * _convolved(spoken, silent)
    found /= found.sum()
    return found


def determines_correct_guesses(losses: LossDistribution) -> bool:
    """Return whether the distribution of the losses says how many guesses are right.

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
    """Return how often 0, 1, ..., ``guesses`` were right in that many runs.

    Divided by ``runs`` it estimates the distribution of V. All its cumulated
    probabilities at once are off by more than ``sqrt(ln(2 / b) / (2 runs))`` with a
    probability of at most ``b`` (Dvoretzky, Kiefer and Wolfowitz, with Massart's
    constant).

    Args:
        mechanism: What is audited.
        guesser: Guesses all at once, ``guesses`` at most; one not made is wrong.
        pairs: The two records of each element.
        elements: How many.
        guesses: How many guesses are committed to.
        runs: How many independent runs.
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
    """Return how many elements lose, independently of each other."""
    if not _is_independent(kind):
        raise InvalidInputError(
            f"{kind.size} elements share a group: given an output their coins are "
            "dependent, and the law of the losses does not tell how many guesses are "
            "right; use simulated_counts(mechanism, guesser, ...)"
        )
    return kind.groups * kind.size


def _accuracies(loss: Loss, n: int, k: int) -> list[tuple[float, float]]:
    """Return weights and accuracies whose binomials mix to the distribution of V."""
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
    """Return where to split the range of q: its ends, and where ``a`` bends."""
    low = float(special.betaincinv(k + 1, n - k, _TAIL))
    high = float(special.betainccinv(k + 1, n - k, _TAIL))
    if isinstance(loss, DiscreteLoss):
        bends = np.cumsum(loss.probabilities[::-1])
    else:
        edges = np.array(loss.breaks)
        bends = loss.tail_at(np.concatenate([edges, np.nextafter(edges, inf)]))
    return [low, *np.unique(bends[(bends > low) & (bends < high)]).tolist(), high]


def _accuracy(loss: Loss, q: float) -> float:
    """Return the mean probability of a right guess in the upper fraction q."""
    if isinstance(loss, DiscreteLoss):
        above = tail_average(loss, lambda tails: np.minimum(1.0, tails / q))
        return min(1.0, 0.5 + 0.5 * above)
    # min(1, tail / q) bends where the tail is q; the integral is split there.
    low, high = 0.0, loss.breaks[-1]
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if loss.tail(middle) >= q else (low, middle)
    above = tail_average(loss, lambda tails: tails / q, low=low)
    return min(1.0, float(special.expit(low) + special.expit(-low) * above))


def _spread_out(mixture: list[tuple[float, float]], k: int) -> NDArray[np.float64]:
    """Return the masses of a mixture of Bin(k, accuracy)."""
    found = np.zeros(k + 1)
    for weight, a in mixture:
        if a >= 1 or k == 0:
            found[k] += weight
            continue
        low, mass = masses(k, log(a) - log(1 - a), spread=_SPREAD)
        found[low : low + len(mass)] += weight * mass
    return found


def _convolved(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distribution of a sum, touching only counts that can occur."""
    found = np.zeros(len(a) + len(b) - 1)
    i, j = np.flatnonzero(a), np.flatnonzero(b)
    part = np.convolve(a[i[0] : i[-1] + 1], b[j[0] : j[-1] + 1])
    found[i[0] + j[0] : i[0] + j[0] + len(part)] = part
    return found
