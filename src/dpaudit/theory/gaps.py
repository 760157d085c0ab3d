"""The gaps of a one-run audit, as differences of epsilon.

Several steps lead from the claim of a mechanism to the bound of a one-run audit. Each
is a privacy level against an adversary that lacks one more thing; accuracies ``a`` are
converted to the epsilon ``p^-1(a) = ln(a / (1 - a))`` at which randomised response is
guessed equally well.

- *claim*: the claimed epsilon at delta.
- *confidence*: the mechanism's epsilon at ``delta / alpha``, the most that a valid test
  at level alpha can certify. At delta = 0 it equals the mechanism's own level.
- *interference*: the distributional level, also at ``delta / alpha`` so that the drop
  is due to interference only. The adversary no longer knows the other coins.
- *outputs*: the average case, of the most exposed element. The adversary no longer
  picks the output.
- *elements*: the average over the ``k`` best elements, the best efficacy with ``k``
  guesses. The adversary no longer picks one element.
- *guessing*: the efficacy of the guesser in use.
- *statistics*: the mean of the exact lower bound. The adversary must allow for luck.

In addition there are the levels of the same ``k`` guesses, on average over outputs, by
knowledge of the other coins (``theory/knowledge``): all, those of earlier turns, none.
They show interference, and how much of it adaptive auditing recovers, even if the worst
output reveals every coin.

The paper's three gaps are interference, outputs and elements; its chain of inequalities
makes those drops nonnegative at delta = 0. With delta they may be negative, and so may
the last, as a bound is not linear in the accuracy.

Reference: Keinan, Shenfeld and Ligett, Theorems "Optimal efficacy without abstentions"
and "Optimal efficacy", https://arxiv.org/abs/2503.07199;
docs/explanation/why-the-bound-is-lower.md#the-gaps.
"""

from dataclasses import dataclass
from math import inf
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.power import design_ceiling
from dpaudit.errors import InvalidInputError
from dpaudit.game.guessers import MostLikely
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.binomial import masses
from dpaudit.stats.intervals import mean_limits
from dpaudit.theory.capabilities import (
    can_be_simulated,
    has_loss_distribution,
    has_output_likelihood,
)
from dpaudit.theory.correct_guess_distribution import (
    correct_guess_distribution,
    determines_correct_guesses,
    simulated_counts,
)
from dpaudit.theory.gap_levels import Estimate, GapLevel, Gaps
from dpaudit.theory.knowledge import knowledge
from dpaudit.theory.levels import Levels, levels, worst_case
from dpaudit.theory.limit import limit
from dpaudit.theory.power import bounds_by_count

__all__ = ["GapLevel", "Gaps", "gaps"]

_LEAST_GAMES = 100  # minimum number of simulated games
_NOT_KNOWN = "at least that of one who knows no coin: it is not known"
_MOST_CELLS = 200_000  # of the output likelihoods, for the limit
_INTERVAL_ALPHA = (
    0.01  # for the intervals of simulated values, as in theory/simulation.py
)


def gaps(  # noqa: PLR0913 (describes a whole audit)
    mechanism: object,
    *,
    elements: int,
    guesses: int | None = None,
    delta: float = 0.0,
    alpha: float = 0.05,
    claim: Guarantee | None = None,
    efficacy: Estimate | None = None,
    observed: float | None = None,
    rng: np.random.Generator | None = None,
    runs: int = 4000,
) -> Gaps:
    """Return where the epsilon of a claim is lost on the way to a bound.

    Args:
        mechanism: The audited mechanism; see ``levels`` for the methods it needs.
        elements: Coins of the audit.
        guesses: Guesses of the audit; all coins by default.
        delta: The delta of the claim and the bound.
        alpha: Probability that the bound is wrong.
        claim: The claimed guarantee; by default the mechanism's own. Without either,
            the level is enumerated or reported as not known.
        efficacy: Of the guesser in use; by default that of the maximum-likelihood one,
            with no drop. If given, guesses are assumed to be correct independently, and
            the levels by knowledge are omitted.
        observed: A bound from a run, to be compared with the expected one.
        rng: Needed if something must be simulated.
        runs: Number of simulated runs.

    Example:
        >>> from dpaudit.mechanisms.parity import Xor
        >>> gaps(Xor(elements=50), elements=50).drops["interference"]
        inf
    """
    k = elements if guesses is None else guesses
    _validate.probability("delta", delta)
    _validate.error_level("alpha", alpha)
    _validate.whole_number("runs", runs, least=2)
    exempt = min(1.0, delta / alpha)
    mechanism_levels = levels(
        mechanism, elements=elements, guesses=k, delta=exempt, rng=rng, runs=runs
    )
    design = _Design(canaries=elements, guesses=k, delta=delta, alpha=alpha)
    if efficacy is None:
        distribution, drawn = _correct_guesses(mechanism, design, runs, rng)
        expected, spread = _expected(distribution, design, drawn)
    else:
        expected, spread = _expected_at(efficacy, design)
    return Gaps(
        levels=(
            *_guaranteed(mechanism, claim, mechanism_levels, delta),
            *_achievable(mechanism_levels, efficacy or mechanism_levels.best_accuracy),
            GapLevel.of("statistics", expected, f"the expected bound from {k} guesses"),
        ),
        spread=spread,
        remainder=None if observed is None else observed - expected.value,
        delta=delta,
        alpha=alpha,
        elements=elements,
        guesses=k,
        knowledge=_by_knowledge(mechanism, mechanism_levels, runs, rng)
        if not efficacy
        else (),
        most=_most(mechanism, design),
    )


def _most(mechanism: object, design: "_Design") -> Estimate | None:
    """Return the limit of valid audits' medians, if it can be computed in seconds."""
    if not has_output_likelihood(mechanism):
        return None
    outputs = mechanism.output_likelihood(design.canaries)
    if sum(kind.cells for kind in outputs) > _MOST_CELLS:
        return None
    most = limit(outputs, alpha=design.alpha, delta=design.delta)
    return Estimate.exact(most) if most < inf else None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Design:
    """The numbers that a bound needs besides the number of correct guesses."""

    canaries: int
    guesses: int
    delta: float
    alpha: float

    def bounds(self, distribution: NDArray[np.float64]) -> NDArray[np.float64]:
        return bounds_by_count(
            distribution,
            canaries=self.canaries,
            guesses=self.guesses,
            delta=self.delta,
            alpha=self.alpha,
        )

    @property
    def ceiling(self) -> float:
        return design_ceiling(
            canaries=self.canaries,
            guesses=self.guesses,
            delta=self.delta,
            alpha=self.alpha,
        )


def _guaranteed(
    mechanism: object, claim: Guarantee | None, mechanism_levels: Levels, delta: float
) -> tuple[GapLevel, GapLevel]:
    """Return the worst-case levels: over all data, outputs and elements."""
    level = worst_case(
        mechanism, elements=mechanism_levels.elements, delta=mechanism_levels.delta
    )
    if claim is not None:
        claimed: float | None = claim.epsilon_at(delta)
    elif delta == 0:
        claimed = level
    else:
        claimed = worst_case(mechanism, elements=mechanism_levels.elements, delta=delta)
    at, later = (
        f"at delta = {d:g}" if d else "" for d in (delta, mechanism_levels.delta)
    )
    return (
        GapLevel.of(
            "claim",
            _at_least(mechanism_levels.distributional_epsilon, claimed),
            f"what is claimed {at}".strip() if claimed is not None else _NOT_KNOWN,
        ),
        GapLevel.of(
            "confidence",
            _at_least(mechanism_levels.distributional_epsilon, level),
            f"the level {later}, the most that a valid test can certify"
            if later
            else "the level of the mechanism",
        ),
    )


def _at_least(distributional: Estimate, level: float | None) -> Estimate:
    """Return a level; if it is not known, with a lower limit only."""
    if level is not None:
        return Estimate.exact(level)
    return Estimate(value=distributional.value, low=distributional.low, high=inf)


def _achievable(mechanism_levels: Levels, efficacy: Estimate) -> tuple[GapLevel, ...]:
    """Return the levels that a one-run audit could reach with unlimited data."""
    at = f", at delta = {mechanism_levels.delta:g}" if mechanism_levels.delta else ""
    return (
        GapLevel.of(
            "interference",
            mechanism_levels.distributional_epsilon,
            f"the level to one who knows no coin{at}",
        ),
        GapLevel.of(
            "outputs",
            mechanism_levels.as_epsilon(mechanism_levels.average_case_accuracy),
            "the most exposed element, on average over outputs",
        ),
        GapLevel.of(
            "elements",
            mechanism_levels.as_epsilon(mechanism_levels.best_accuracy),
            f"the {mechanism_levels.guesses} most exposed elements on average",
        ),
        GapLevel.of(
            "guessing", mechanism_levels.as_epsilon(efficacy), "the guesser in use"
        ),
    )


def _by_knowledge(
    mechanism: object,
    mechanism_levels: Levels,
    runs: int,
    rng: np.random.Generator | None,
) -> tuple[GapLevel, ...]:
    """Return the levels of as many guesses by better informed guessers, if known."""
    known = knowledge(
        mechanism,
        elements=mechanism_levels.elements,
        guesses=mechanism_levels.guesses,
        rng=rng,
        runs=max(_LEAST_GAMES, runs // 4),
    )
    if known is None:
        return ()
    return (
        GapLevel.of(
            "full knowledge",
            mechanism_levels.as_epsilon_knowing(known.full),
            f"all: {mechanism_levels.guesses} guesses on average over outputs",
        ),
        GapLevel.of(
            "adaptivity",
            mechanism_levels.as_epsilon_knowing(known.in_turn),
            "those of earlier turns: as many guesses, coins revealed",
        ),
        GapLevel.of(
            "one run",
            mechanism_levels.as_epsilon(mechanism_levels.best_accuracy),
            "none: the level of elements above",
        ),
    )


def _correct_guesses(
    mechanism: object, design: _Design, runs: int, rng: np.random.Generator | None
) -> tuple[NDArray[np.float64], int | None]:
    """Return V's distribution under the best guesser; if simulated, also the runs."""
    if has_loss_distribution(mechanism):
        losses = mechanism.loss_distribution(design.canaries)
        if determines_correct_guesses(losses):
            return correct_guess_distribution(losses, guesses=design.guesses), None
    if not can_be_simulated(mechanism) or rng is None:
        raise InvalidInputError(
            "how many guesses are correct must be simulated for this mechanism: give "
            "it run, log_odds and pairs, and pass rng=np.random.default_rng(seed)"
        )
    counts = simulated_counts(
        mechanism,
        MostLikely(mechanism=mechanism, guesses=design.guesses),
        mechanism.pairs,
        elements=design.canaries,
        guesses=design.guesses,
        runs=runs,
        rng=rng,
    )
    return counts / runs, runs


def _expected(
    distribution: NDArray[np.float64], design: _Design, drawn: int | None
) -> tuple[Estimate, float]:
    """Return the mean of the bound and its standard deviation.

    The interval of a simulated mean holds for any number of runs, as bounds lie between
    0 and the bound for all guesses correct.
    """
    bounds = design.bounds(distribution)
    mean = float(distribution @ bounds)
    variance = float(distribution @ (bounds - mean) ** 2)
    if drawn is None:
        return Estimate.exact(mean), variance**0.5
    span = (0.0, design.ceiling)
    low, high = mean_limits(mean, variance, drawn, span=span, alpha=_INTERVAL_ALPHA)
    return Estimate(value=mean, low=low, high=high), variance**0.5


def _expected_at(efficacy: Estimate, design: _Design) -> tuple[Estimate, float]:
    """Return mean and deviation of the bound if guesses are independently correct."""
    ends = [_binomial(a, design) for a in (efficacy.low, efficacy.value, efficacy.high)]
    (low, _), (mean, spread), (high, _) = (_expected(e, design, None) for e in ends)
    return Estimate(value=mean.value, low=low.value, high=high.value), spread


def _binomial(accuracy: float, design: _Design) -> NDArray[np.float64]:
    distribution = np.zeros(design.guesses + 1)
    if accuracy in (0.0, 1.0):
        distribution[round(accuracy * design.guesses)] = 1.0
        return distribution
    odds = float(special.logit(accuracy))
    low, mass = masses(design.guesses, odds, spread=10.0)
    distribution[low : low + len(mass)] = mass
    distribution /= distribution.sum()
    return distribution
