"""Bounds on counts of correct guesses: one run, guesses as made, independent runs.

A guesser guesses ``r`` of ``m`` fair coins, ``v`` of them correctly. Under a claim of
(epsilon, delta)-DP each bound here computes the largest probability of ``v`` or more
correct guesses over all mechanisms and guessers. Throughout,
``p = e^epsilon / (1 + e^epsilon)``.

*One run* (``ExactBound``). All guesses are made at once, from one output. The
probability of ``v`` correct guesses or more is at most ``beta + m delta beta (1 - beta)
/ (v b_v)``, where ``beta`` is the tail and ``b_v`` the mass at ``v`` of Bin(r, p); some
mechanism attains it. The proof solves the binomial's Stein equation and swaps each coin
once. It holds for every mechanism and every guesser that sees the whole output and
makes no more than ``r`` guesses, a number fixed before the run.

*One run at delta = 0* (``PureBound``). Given the output and the coins before it, a coin
is guessed correctly with probability at most ``p``; so the number of correct guesses is
stochastically dominated by Bin(r, p), and a binomial tail is a p-value. The lower bound
on epsilon is the Clopper-Pearson limit on a rate, as log-odds: a beta quantile. As this
holds given the output, the number of guesses may depend on the output too.

*As many guesses as made* (``AsMadeBound``). If the output decides how many guesses are
made, the reading is that number and the number of correct ones. At delta = 0 the
binomial tail at the number made is a p-value, as above: this is the paper's Algorithm 1
as printed. Under (epsilon, delta) the coins can be coupled with coins whose odds, given
the output and the coins before, are at most e^epsilon, except on an event of
probability ``m delta / (1 + e^epsilon)`` at most
(docs/explanation/bounds.md#why-they-are-valid). So the tail plus that price is a
p-value. It bounds a different event for each epsilon, so epsilons are tested on a grid,
up to the first that is not rejected; at delta = 0 tails increase with epsilon, and no
grid is needed.

*Independent runs* (``SeparateRunsBound``). Each run has one coin: it decides which of
two neighbouring data sets the mechanism sees, and the guesser guesses it or abstains.
Any (epsilon, delta)-DP run can be simulated from this: with probability delta the coin
itself, otherwise a randomised response to it. So of ``r`` guesses about ``n`` runs,
those about revealed coins are certainly correct, at most ``K ~ Bin(n, delta)`` of them,
and each other one with probability at most ``p``. The number of correct guesses is
stochastically dominated by ``min(K, r)`` plus a binomial of the rest. The guesser that
guesses revealed coins first attains it, so this is exact too, and delta costs less than
in one run: there is no ``m delta``. It holds for guessers that see the outputs of all
runs before they guess.

References: docs/explanation/bounds.md#the-exact-bound; for the game and the pure bound,
Steinke, Nasr and Jagielski, https://arxiv.org/abs/2305.08846; for independent runs,
Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, algorithm 2, and
Jagielski, Ullman and Oprea, https://arxiv.org/abs/2006.07709; for the simulation of a
run, Kairouz, Oh and Viswanath, https://arxiv.org/abs/1311.0776, theorem 3.4.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf, log
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.bound import GameBound, add_price, probability
from dpaudit.bounds.readings import Counts, CountsAsMade, check_at_once
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from dpaudit.stats.binomial import (
    log_exact_tail,
    log_revealed_tail,
    log_tails,
)

__all__ = [
    "AsMadeBound",
    "ExactBound",
    "PureBound",
    "SeparateRunsBound",
]


@final
@dataclass(frozen=True, slots=True)
class ExactBound(GameBound[Counts]):
    """The tightest bound from counts that is valid for every mechanism.

    Example:
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> print(ExactBound().epsilon_lower(counts, delta=1e-5, alpha=0.05))
        epsilon >= 2.802 at delta = 1e-05 (95 % confidence, \
for any mechanism; method exact)
    """

    method: ClassVar[str] = "exact"
    reference: ClassVar[str] = "docs/explanation/bounds.md#the-exact-bound"
    rises: ClassVar[bool] = True  # each is the largest probability under a claim

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value, which itself may underflow."""
        log_p = self.log_p_of(counts, delta=delta)
        _validate.nonnegative("epsilon", epsilon)
        return log_p(epsilon)

    def log_p_of(self, counts: Counts, *, delta: float) -> Callable[[float], float]:
        """Return the log of the p-value as a function of epsilon."""
        check_at_once(counts, self.method)
        _validate.probability("delta", delta)
        r, v = counts.guesses, counts.correct
        return partial(log_exact_tail, v, r, _log_total_delta(counts, delta))

    def log_p_values(
        self,
        counts: Counts,
        epsilons: NDArray[np.float64],
        deltas: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the logs of the p-values of the points of a guarantee."""
        check_at_once(counts, self.method)
        r, v = counts.guesses, counts.correct
        points = zip(epsilons.tolist(), deltas.tolist(), strict=True)
        return np.array(
            [log_exact_tail(v, r, _log_total_delta(counts, d), e) for e, d in points]
        )

    def p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the p-value of a claim.

        Args:
            counts: The guesser's counts.
            epsilon: Claimed epsilon.
            delta: Claimed delta.

        Returns:
            The largest probability, over all (epsilon, delta)-DP mechanisms and
            guessers, of as many correct guesses or more.
        """
        return probability(self.log_p_value(counts, epsilon=epsilon, delta=delta))

    def log_p_claim(
        self,
        counts: Counts,
        claim: Guarantee,
        *,
        alpha: float,  # noqa: ARG002 (one test for all levels)
    ) -> float:
        """Return the log of the p-value of a claim; a curve is tested as a whole."""
        from dpaudit.bounds.curve import curve_log_p_value  # noqa: PLC0415 (import cycle)

        if not isinstance(claim, PureDP | ApproxDP):
            return curve_log_p_value(counts, claim)
        return float(self.log_p_values(counts, *claim.points()).min())


def _log_total_delta(counts: Counts, delta: float) -> float:
    """Return the log of m delta."""
    return log(counts.canaries) + log(delta) if counts.canaries and delta else -inf


@final
@dataclass(frozen=True, slots=True)
class PureBound(GameBound[Counts]):
    """The bound at delta = 0.

    Reference: Keinan, Shenfeld and Ligett, "prop:one-run-auditing-is-valid".

    Example:
        >>> counts = Counts(canaries=100, guesses=100, correct=75)
        >>> found = PureBound().epsilon_lower(counts, delta=0.0, alpha=0.05)
        >>> round(found.epsilon_lower, 6)
        0.702214
    """

    method: ClassVar[str] = "pure"
    reference: ClassVar[str] = "https://arxiv.org/abs/2305.08846"
    rises: ClassVar[bool] = True  # they are binomial tails

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of the claim; delta must be 0."""
        guessed = self._guessed(counts, delta)
        return ExactBound().log_p_value(guessed, epsilon=epsilon, delta=0.0)

    def log_p_of(self, counts: Counts, *, delta: float) -> Callable[[float], float]:
        """Return the log of the p-value as a function of epsilon."""
        return ExactBound().log_p_of(self._guessed(counts, delta), delta=0.0)

    def _guessed(self, counts: Counts, delta: float) -> Counts:
        """Return the counts without unguessed canaries, irrelevant at delta = 0."""
        check_at_once(counts, self.method)
        if delta != 0:
            raise InvalidInputError(
                f"the pure bound is for delta=0, got {delta=}; use the exact bound"
            )
        return replace(counts, canaries=counts.guesses)


@final
@dataclass(frozen=True, slots=True)
class AsMadeBound(GameBound[CountsAsMade]):
    """The bound where the output decides how many guesses are made.

    Example:
        >>> made = CountsAsMade(canaries=2000, guesses=100, correct=75)
        >>> print(AsMadeBound().epsilon_lower(made, delta=0.0, alpha=0.05))
        epsilon >= 0.702 at delta = 0 (95 % confidence, \
for any mechanism; method as made)
    """

    method: ClassVar[str] = "as made"
    reference: ClassVar[str] = "docs/explanation/bounds.md#as-many-guesses-as-made"
    rises_without_delta: ClassVar[bool] = True  # they are binomial tails

    def one_event(self, made: CountsAsMade, /) -> bool:  # noqa: ARG002
        """Return False: which counts are at least as extreme depends on epsilon."""
        return False

    def log_p_value(self, made: CountsAsMade, *, epsilon: float, delta: float) -> float:
        """Return the log of the tail at the number made, and the price of delta."""
        _validate.nonnegative("epsilon", epsilon)
        price = coupling_failure_probability(made.canaries, epsilon, delta)
        if made.correct == 0:
            return 0.0
        return add_price(log_tails(made.correct, made.guesses, epsilon)[0], price)


@final
@dataclass(frozen=True, slots=True)
class SeparateRunsBound(GameBound[Counts]):
    """The bound for independent runs; ``canaries`` counts the runs.

    Reference: Keinan, Shenfeld and Ligett, "prop:classic-auditing-is-valid",
    "lem:classic-auditing-is-tight".

    Example:
        >>> runs = Counts(canaries=1000, guesses=1000, correct=880)
        >>> print(SeparateRunsBound().epsilon_lower(runs, delta=1e-5, alpha=0.05))
        epsilon >= 1.829 at delta = 1e-05 (95 % confidence, \
for any mechanism in independent runs; method separate)
    """

    method: ClassVar[str] = "separate"
    reference: ClassVar[str] = (
        "docs/explanation/bounds.md#one-coin-in-each-of-many-runs"
    )
    rises: ClassVar[bool] = True  # each is the largest probability under a claim

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim."""
        check_at_once(counts, self.method)
        _validate.nonnegative("epsilon", epsilon)
        _validate.probability("delta", delta)
        n, r, v = counts.canaries, counts.guesses, counts.correct
        return log_revealed_tail(v, r, n, probability=delta, log_odds=epsilon)

    def log_p_claim(
        self,
        counts: Counts,
        claim: Guarantee,
        *,
        alpha: float,  # noqa: ARG002 (one test for all levels)
    ) -> float:
        """Return the log of the p-value of a claim, a point or a whole curve.

        On a curve only points that may have the smallest p-value are evaluated.
        """
        epsilons, deltas = claim.points()
        points = zip(epsilons.tolist(), deltas.tolist(), strict=True)
        best = 0.0
        for floor, epsilon, delta in sorted(
            (_log_floor(counts, *point), *point) for point in points
        ):
            if floor >= best:
                break
            log_p = self.log_p_value(counts, epsilon=epsilon, delta=delta)
            best = min(best, log_p)
        return best


def _log_floor(counts: Counts, epsilon: float, delta: float) -> float:
    """Return a quick lower bound on the log of a p-value of independent runs.

    With probability at least 1/2, ``n delta`` coins, rounded down, are revealed.
    """
    revealed = min(counts.guesses, int(counts.canaries * delta))
    tail = log_tails(counts.correct - revealed, counts.guesses - revealed, epsilon)[0]
    return tail - log(2)
