"""The privacy levels of a mechanism, from the worst case to what one run can show.

Differential privacy bounds what any output reveals about any element to an adversary
who knows all others. Each step towards what a one-run audit sees weakens this (the
paper's three gaps):

- the *distributional* level (DDP): the others are unknown, fair coins;
- the *average case* (AC-DDP): a typical output, not the worst one;
- the *best k* (k-AE-AC-DDP): the average over the ``k`` most exposed elements, which is
  the best efficacy E[V / R] of a guesser that makes at least ``k`` guesses;
- the *average element* (AE-AC-DDP): over all elements, the best efficacy without
  abstention.

The worst case and the distributional level are epsilons, the others probabilities of a
correct guess; ``p(epsilon) = e^epsilon / (1 + e^epsilon)`` and its inverse convert one
to the other. As probabilities, at ``delta = 0``, they decrease from step to step.

The method depends on what the mechanism supports: a loss distribution gives the levels
in closed form at any size, an output distribution by enumeration, log-odds by
simulation.

Reference: Keinan, Shenfeld and Ligett, section "Efficacy and asymptotic tightness of
ORA", https://arxiv.org/abs/2503.07199.
"""

from dataclasses import dataclass
from math import inf, isnan
from typing import NamedTuple, final

import numpy as np
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.loss_distribution import LossDistribution
from dpaudit.theory import levels_from_loss
from dpaudit.theory.capabilities import (
    Simulable,
    can_be_enumerated,
    can_be_simulated,
    guarantee_of,
    has_loss_distribution,
)
from dpaudit.theory.enumeration import Enumeration, enumerate_mechanism
from dpaudit.theory.gap_levels import Estimate
from dpaudit.theory.simulation import simulate

__all__ = ["Estimate", "Levels", "levels", "worst_case"]

_LAST_DIGITS = 1e-15  # of an accuracy near 1
_NOT_KNOWN = "; the worst case is not known"
_SLACK = 1e-6  # rounding may break the order of levels by so much


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels of one mechanism at one number of elements and guesses.

    Attributes:
        elements: Number of elements.
        guesses: Minimum number of guesses of the best guesser.
        delta: Of the worst case and of the distributional level.
        worst_case_epsilon: The DP level at delta, an epsilon; infinite if there is
            none or none is known (``how`` tells which).
        distributional_epsilon: An epsilon.
        average_case_accuracy: A probability.
        best_accuracy: A probability; the best efficacy with that many guesses.
        average_element_accuracy: A probability; the best efficacy without abstention.
        how: How the numbers were computed.
    """

    elements: int
    guesses: int
    delta: float
    worst_case_epsilon: float
    distributional_epsilon: Estimate
    average_case_accuracy: Estimate
    best_accuracy: Estimate
    average_element_accuracy: Estimate
    how: str

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=1)
        _check_guesses(self.guesses, self.elements)
        _validate.probability("delta", self.delta)
        if isnan(self.worst_case_epsilon) or self.worst_case_epsilon < 0:
            raise InvalidInputError(
                "worst_case_epsilon must be 0 or more, got "
                f"worst_case_epsilon={self.worst_case_epsilon!r}"
            )
        self._check_chain()

    @property
    def efficacy(self) -> Estimate:
        """The best efficacy E[V / R] with at least as many guesses."""
        return self.best_accuracy

    def as_epsilon(self, measured: Estimate) -> Estimate:
        """Return the epsilon at which guesses are correct with this probability.

        Example:
            >>> from dpaudit.mechanisms.table import FiniteTable
            >>> table = FiniteTable(rows=np.array([[0.75, 0.25], [0.25, 0.75]]))
            >>> found = levels(table, elements=1)
            >>> print(found.efficacy, found.as_epsilon(found.efficacy))
            0.75 1.099
        """
        # At delta = 0 no accuracy exceeds p(distributional), but close to 1 floats
        # cannot distinguish them.
        return _as_epsilon(
            measured, self.distributional_epsilon.high if not self.delta else inf
        )

    def as_epsilon_knowing(self, measured: Estimate) -> Estimate:
        """Return the epsilon of the accuracy of a guesser who knows other coins."""
        return _as_epsilon(measured, inf if self.delta else self.worst_case_epsilon)

    def _check_chain(self) -> None:
        chain = [
            self.average_element_accuracy.value,
            self.best_accuracy.value,
            self.average_case_accuracy.value,
        ]
        if self.delta == 0:
            chain.append(float(special.expit(self.distributional_epsilon.value)))
        if np.any(np.diff([0.5, *chain, 1.0]) < -_SLACK):
            raise InvalidInputError(
                "expected 1/2 <= average_element_accuracy <= best_accuracy <= "
                "average_case_accuracy (<= p(distributional_epsilon) at delta = 0) <= "
                f"1, got {chain}"
            )
        # A simulated lower end at delta > 0 may by chance be too large.
        exact = self.delta == 0 or self.distributional_epsilon.is_exact
        if exact and self.distributional_epsilon.low > self.worst_case_epsilon + _SLACK:
            raise InvalidInputError(
                f"worst_case_epsilon={self.worst_case_epsilon:g} is below the "
                f"distributional level {self.distributional_epsilon}: the guarantee "
                "does not hold, or is for another adjacency than that of the pairs"
            )


def levels(
    mechanism: object,
    *,
    elements: int,
    guesses: int | None = None,
    delta: float = 0.0,
    rng: np.random.Generator | None = None,
    runs: int = 2000,
) -> Levels:
    """Return the privacy levels of a mechanism on its pairs.

    Reference: Keinan, Shenfeld and Ligett, "sec:efficacy",
    "lem:ora-efficacy-and-tightness", "lem:efficacy-and-tightness",
    "lem-restated:efficacy-and-tightness", "thm:optimal-efficacy-without-abstentions",
    "thm:condition-for-tightness-without-abstentions",
    "lem:bounds-approach-efficacy-for-local-algorithms".

    Args:
        mechanism: Has ``loss_distribution``; or ``distribution`` and ``pairs``, for at
            most 12 elements; or ``run``, ``log_odds`` and ``pairs``.
        elements: Number of elements.
        guesses: Minimum number of guesses; all elements by default.
        delta: Of the worst case and of the distributional level.
        rng: For simulation only.
        runs: For simulation only.

    Returns:
        The levels. The worst case is that of the mechanism's ``guarantee``; without one
        it is enumerated if possible, and not known otherwise.

    Example:
        >>> from dpaudit.mechanisms.table import FiniteTable
        >>> count = FiniteTable(rows=np.eye(3)[[0, 1, 1, 2]])
        >>> found = levels(count, elements=2)
        >>> found.worst_case_epsilon, found.average_element_accuracy.value
        (inf, 0.75)
    """
    _validate.whole_number("elements", elements, least=1)
    _validate.probability("delta", delta)
    guesses = elements if guesses is None else guesses
    _check_guesses(guesses, elements)
    if has_loss_distribution(mechanism):
        computed = _closed_form(mechanism.loss_distribution(elements), guesses, delta)
    elif can_be_enumerated(mechanism, elements):
        table = enumerate_mechanism(mechanism, mechanism.pairs, elements=elements)
        computed = _enumerated(table, guesses, delta)
    elif can_be_simulated(mechanism):
        computed = _simulated(mechanism, elements, guesses, delta, runs, rng)
    else:
        raise InvalidInputError(
            f"{type(mechanism).__name__} does not describe itself enough: add the "
            "method loss_distribution(elements), or distribution(data) and pairs for "
            "at most 12 elements, or log_odds(output) and pairs"
        )
    worst = worst_case(mechanism, elements=elements, delta=delta)
    return Levels(
        elements=elements,
        guesses=guesses,
        delta=delta,
        worst_case_epsilon=inf if worst is None else worst,
        distributional_epsilon=computed.distributional_epsilon,
        average_case_accuracy=computed.average_case_accuracy,
        best_accuracy=computed.best_accuracy,
        average_element_accuracy=computed.average_element_accuracy,
        how=computed.how + _NOT_KNOWN * (worst is None),
    )


class _Computed(NamedTuple):
    distributional_epsilon: Estimate
    average_case_accuracy: Estimate
    best_accuracy: Estimate
    average_element_accuracy: Estimate
    how: str


def _closed_form(losses: LossDistribution, guesses: int, delta: float) -> _Computed:
    return _Computed(
        distributional_epsilon=Estimate.exact(
            levels_from_loss.epsilon_at(losses, delta)
        ),
        average_case_accuracy=Estimate.exact(levels_from_loss.average_case(losses)),
        best_accuracy=Estimate.exact(levels_from_loss.best(losses, guesses)),
        average_element_accuracy=Estimate.exact(
            levels_from_loss.average_element(losses)
        ),
        how="closed form",
    )


def _enumerated(table: Enumeration, guesses: int, delta: float) -> _Computed:
    return _Computed(
        distributional_epsilon=Estimate.exact(table.distributional(delta=delta)),
        average_case_accuracy=Estimate.exact(table.average_case),
        best_accuracy=Estimate.exact(table.best(guesses)),
        average_element_accuracy=Estimate.exact(table.average_element),
        how=f"enumeration of 2^{table.elements} coins",
    )


def _simulated(
    mechanism: Simulable,
    elements: int,
    guesses: int,
    delta: float,
    runs: int,
    rng: np.random.Generator | None,
) -> _Computed:
    if rng is None:
        raise InvalidInputError(
            "rng is needed: the mechanism offers neither loss_distribution nor, at "
            "this size, a distribution, so that it must be simulated; pass "
            "rng=np.random.default_rng(seed)"
        )
    simulation = simulate(
        mechanism,
        mechanism.pairs,
        elements=elements,
        guesses=guesses,
        delta=delta,
        runs=runs,
        rng=rng,
    )
    how = f"simulation of {runs} runs, each interval holds with 99 %"
    if delta == 0:
        how += "; the distributional level is only bounded from below"
    return _Computed(
        simulation.distributional,
        simulation.average_case,
        simulation.best,
        simulation.average_element,
        how,
    )


def worst_case(mechanism: object, *, elements: int, delta: float) -> float | None:
    """Return a mechanism's DP epsilon at delta, infinity if none, None if unknown."""
    guarantee = guarantee_of(mechanism)
    if guarantee is not None:
        return guarantee.epsilon_at(delta)
    if can_be_enumerated(mechanism, elements):
        table = enumerate_mechanism(mechanism, mechanism.pairs, elements=elements)
        return table.worst_case(delta=delta)
    return None


def _as_epsilon(measured: Estimate, cap: float) -> Estimate:
    return Estimate(
        value=_epsilon(measured.value, cap),
        low=_epsilon(measured.low, cap),
        high=_epsilon(measured.high, cap),
    )


def _epsilon(probability: float, cap: float) -> float:
    """Return the inverse of p, at least 0 and at most a cap."""
    if probability >= float(special.expit(cap)) - _LAST_DIGITS:
        return cap
    return max(0.0, float(special.logit(probability)))


def _check_guesses(guesses: int, elements: int) -> None:
    _validate.whole_number("guesses", guesses, least=1)
    if guesses > elements:
        raise InvalidInputError(
            f"guesses must be at most elements={elements}, got guesses={guesses}"
        )
