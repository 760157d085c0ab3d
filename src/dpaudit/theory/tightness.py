"""Asymptotic tightness of one-run audits, in general and for counts in sets.

One-run auditing of a mechanism ``M`` is asymptotically tight, that is, its bounds reach
the DP level ``epsilon(M)`` as the number of elements grows, if and only if for every
``epsilon' < epsilon(M)`` the number of elements with a loss of at least ``epsilon'``
tends to infinity in probability. Here that number is computed for increasing sizes: its
expectation, and the probability that it is at least ten. Expectation alone is not
enough: all-or-nothing exposes a share of all elements on average, yet with a fixed
probability none.

A table is evidence, not proof. The verdict describes the trend at the given thresholds
and sizes. A loss that only larger thresholds reach, or a trend that begins only at
larger sizes, is missed.

For count-in-sets the question is how fast sets may grow. A noiseless count of ``s`` has
a loss of ``a`` or more with probability ``exp(-s D(a) + O(log s))``, where ``D(a) = ln
2 - H(p(a))`` is below ``ln 2`` for finite ``a`` and increases to it. Hence ``n exp(-s
D(a))`` grows for every finite ``a`` if and only if ``limsup s(n) / log2 n <= 1``. (The
paper prints ``s = o(log n)``. That is sufficient, but not necessary: with ``s =
log2(n) / 2`` the sets whose coins all agree hold ``2 sqrt(n)`` elements on average.) At
the boundary itself, ``s = log2 n``, the number grows like ``n^(1 - D(a) / ln 2)``: at
``a = 4`` like ``n^0.13``, and at ``a = 8`` like ``n^0.004``, which shows at ``n =
2^4096`` but at no practical size.

Numbers are kept as logarithms, so that sizes far beyond floats show the trend. Tails
are exact up to sets of 2^40; above, they are approximated by the large deviation
``exp(-s D(a))``, which is off by a factor of the order of ``sqrt(s)``.

Reference: Keinan, Shenfeld and Ligett, Theorem "Condition for asymptotic tightness of
ORA" and Proposition "Condition for asymptotic tightness of ORA for count-in-sets",
https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, isqrt, log, log2
from types import MappingProxyType
from typing import final

import numpy as np
from scipy import special

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.loss_distribution import LossDistribution
from dpaudit.stats import binomial_tails
from dpaudit.stats.binomial import log_tails
from dpaudit.theory import levels_from_loss

__all__ = [
    "MANY",
    "SET_SIZES",
    "Exposure",
    "SetSize",
    "Tightness",
    "count_in_sets_tightness",
    "exposure",
    "tightness",
]

MANY = 10  # so many exposed elements count as many
_CERTAIN = 1 - 1e-12
_LEAST_LOG2_EXPECTED = -900.0  # log2 of an expected number that is practically zero
_LOG2_SIZES = (16, 64, 256, 1024, 4096)
_THRESHOLDS = (1.0, 2.0, 4.0)
_EXACT_UP_TO = 1 << 40  # larger sets use the large-deviation approximation


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """The number of elements with a loss of at least some threshold.

    Attributes:
        size: Total number of elements.
        log2_expected: Logarithm to base 2 of the expected number.
        probability: The probability that it is at least ten.
    """

    size: int
    log2_expected: float
    probability: float

    def __str__(self) -> str:
        return f"{_power(self.log2_expected)} at n = {_power(log2(self.size))}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tightness:
    """Evidence for or against asymptotic tightness.

    Attributes:
        thresholds: Sizes of loss, each below the DP level.
        sizes: Numbers of elements, at least three, increasing.
        table: For each threshold a row with the exposure at each size.
        note: Further information, printed after the table.
    """

    thresholds: tuple[float, ...]
    sizes: tuple[int, ...]
    table: tuple[tuple[Exposure, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if len(self.sizes) < 3 or any(np.diff(np.array(self.sizes, object)) <= 0):
            raise InvalidInputError(
                f"sizes must be three or more and rise, got sizes={self.sizes}"
            )
        shape = {len(row) for row in self.table}
        if len(self.table) != len(self.thresholds) or shape != {len(self.sizes)}:
            raise InvalidInputError(
                "table must have a row for each threshold and an entry for each size"
            )

    @property
    def verdict(self) -> bool | None:
        """Whether the audit seems tight; None if the trend is unclear.

        Tight if the number grows at every threshold, not if it fails to grow at one.
        """
        trends = [_grows(row) for row in self.table]
        if False in trends:
            return False
        return None if None in trends else True

    def __str__(self) -> str:
        words = {True: "growing", False: "not growing", None: "no clear trend"}
        lines = [
            f"elements with a loss of {threshold:g} or more: "
            f"{', '.join(map(str, row))}; {words[_grows(row)]}"
            for threshold, row in zip(self.thresholds, self.table, strict=True)
        ]
        verdicts = {
            True: "At these thresholds and sizes one-run auditing looks tight.",
            False: "One-run auditing is not tight, if the trend goes on.",
            None: "The trend does not tell whether one-run auditing is tight.",
        }
        return "\n".join([*lines, verdicts[self.verdict], self.note]).strip()


def exposure(
    losses_at: Callable[[int], LossDistribution], threshold: float, sizes: Sequence[int]
) -> tuple[Exposure, ...]:
    """Return how many elements are exposed at each number of elements.

    Args:
        losses_at: The loss distribution for a number of elements.
        threshold: An element with at least this loss counts as exposed.
        sizes: Numbers of elements.
    """
    rows = []
    for size in sizes:
        losses = losses_at(size)
        expected = levels_from_loss.exposed(losses, threshold)
        probability = levels_from_loss.probability_exposed(
            losses, threshold, at_least=MANY
        )
        mean = log2(expected) if expected > 0 else -inf
        rows.append(Exposure(size=size, log2_expected=mean, probability=probability))
    return tuple(rows)


def tightness(
    losses_at: Callable[[int], LossDistribution],
    *,
    thresholds: Sequence[float],
    sizes: Sequence[int],
) -> Tightness:
    """Return the evidence for a mechanism with known loss distribution.

    Reference: Keinan, Shenfeld and Ligett, "def:asymptotic-tightness",
    "thm:condition-for-tightness-of-ora-with-abstentions",
    "theorem:ora-is-tight-for-local-algorithms", "cor:ora-is-not-tight-for-nas",
    "cor:ora-is-not-tight-for-aon", "cor:ora-is-not-tight-for-xor".

    Args:
        losses_at: The loss distribution for a number of elements.
        thresholds: Sizes of loss below the DP level, the largest close to it.
        sizes: Numbers of elements, at least three, increasing.

    Example:
        >>> from dpaudit.mechanisms.loss_distribution import DiscreteLoss
        >>> from dpaudit.mechanisms.loss_distribution import OutputComponent
        >>> sure = DiscreteLoss(values=np.array([1.0]), probabilities=np.ones(1))
        >>> def response(n: int) -> LossDistribution:  # every element has a loss of 1
        ...     kind = OutputComponent(probability=1.0, groups=n, size=1, loss=sure)
        ...     return LossDistribution(elements=n, kinds=(kind,))
        >>> print(tightness(response, thresholds=[0.9], sizes=[10, 100, 1000]))
        elements with a loss of 0.9 or more: 10 at n = 10, 100 at n = 100, 1000 at n \
= 1000; growing
        At these thresholds and sizes one-run auditing looks tight.
    """
    return Tightness(
        thresholds=tuple(thresholds),
        sizes=tuple(sizes),
        table=tuple(exposure(losses_at, threshold, sizes) for threshold in thresholds),
    )


def _grows(row: tuple[Exposure, ...]) -> bool | None:
    """Return whether the trend is that the number tends to infinity in probability."""
    first, second, last = row[-3:]
    rising = first.log2_expected < second.log2_expected < last.log2_expected
    # Probabilities are cut off at the smallest float, so a trend there means nothing.
    if last.log2_expected < _LEAST_LOG2_EXPECTED:
        return False
    if last.probability < _CERTAIN and last.probability <= second.probability:
        return False
    likely = last.probability >= 0.99
    return True if rising and likely else None


def _power(log2_number: float) -> str:
    """Return a number as text, as a power of two if it is very large or small."""
    if log2_number == -inf:
        return "0"
    if abs(log2_number) < 50:
        return f"{2**log2_number:.5g}"
    return f"2^{log2_number:.5g}" if abs(log2_number) > 1e5 else f"2^{log2_number:.0f}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SetSize:
    """How the sets of count-in-sets grow with the number of elements.

    Attributes:
        formula: The size of a set as text.
        at_power: The size of a set among ``2^m`` elements, as a function of ``m``.
        per_log2: The limit of the size divided by ``log2 n``.
    """

    formula: str
    at_power: Callable[[int], int]
    per_log2: float

    @property
    def is_tight(self) -> bool:
        """Whether one-run auditing is asymptotically tight, by the sharp condition."""
        return self.per_log2 <= 1


SET_SIZES: MappingProxyType[str, SetSize] = MappingProxyType(
    {
        "constant": SetSize(formula="8", at_power=lambda m: 8, per_log2=0.0),  # noqa: ARG005
        "log-log": SetSize(
            formula="log2 log2 n", at_power=lambda m: m.bit_length() - 1, per_log2=0.0
        ),
        "half-log": SetSize(
            formula="log2(n) / 2", at_power=lambda m: m // 2, per_log2=0.5
        ),
        "log": SetSize(formula="log2 n", at_power=lambda m: m, per_log2=1.0),
        "double-log": SetSize(
            formula="2 log2 n", at_power=lambda m: 2 * m, per_log2=2.0
        ),
        "sqrt": SetSize(
            formula="sqrt n", at_power=lambda m: isqrt(1 << m), per_log2=inf
        ),
        "all": SetSize(formula="n", at_power=lambda m: 1 << m, per_log2=inf),
    }
)


def count_in_sets_tightness(
    sets: SetSize,
    *,
    thresholds: Sequence[float] = _THRESHOLDS,
    log2_sizes: Sequence[int] = _LOG2_SIZES,
) -> Tightness:
    """Return the evidence for noiseless count-in-sets, for sizes beyond floats too.

    Reference: Keinan, Shenfeld and Ligett,
    "prop:condition-for-tightness-of-ora-for-count-in-sets".

    Args:
        sets: How the sets grow.
        thresholds: Sizes of loss.
        log2_sizes: The numbers of elements are two to these powers.

    Returns:
        The evidence; the note gives the result of the sharp condition.

    Example:
        >>> print(count_in_sets_tightness(SET_SIZES["double-log"], thresholds=[4.0]))
        elements with a loss of 4 or more: 3.0518e-05 at n = 65536, 8.9523e-16 at n = \
2^64, 2^-193 at n = 2^256, 2^-766 at n = 2^1024, 2^-3037 at n = 2^4096; not growing
        One-run auditing is not tight, if the trend goes on.
        Sets of 2 log2 n: s / log2 n tends to 2, so it is not tight; it is if and only \
if the limit is at most 1.
    """
    limit = "infinity" if sets.per_log2 == inf else f"{sets.per_log2:g}"
    return Tightness(
        thresholds=tuple(thresholds),
        sizes=tuple(1 << m for m in log2_sizes),
        table=tuple(
            tuple(_set_exposure(sets.at_power(m), m, a) for m in log2_sizes)
            for a in thresholds
        ),
        note=(
            f"Sets of {sets.formula}: s / log2 n tends to {limit}, so it is "
            f"{'' if sets.is_tight else 'not '}tight; it is if and only if the limit "
            "is at most 1."
        ),
    )


def _set_exposure(set_size: int, power: int, threshold: float) -> Exposure:
    """Return the exposure of ``2^power`` elements in sets of one size."""
    log_q = _log_set_tail(set_size, threshold)
    return Exposure(
        size=1 << power,
        log2_expected=power + log_q / log(2),
        probability=_probability_of_many(set_size, (1 << power) // set_size, log_q),
    )


def _log_set_tail(set_size: int, threshold: float) -> float:
    """Return the log probability that a noiseless count has at least this loss."""
    p = float(special.expit(threshold))
    if set_size > _EXACT_UP_TO:
        rate = float(special.rel_entr(p, 0.5) + special.rel_entr(1 - p, 0.5))
        return -exp(log(set_size) + log(rate)) if set_size >> 1000 == 0 else -inf
    # a product that is a whole number up to rounding must not be rounded up
    least = ceil(set_size * p * (1 - 1e-15))
    return min(0.0, log(2) + log_tails(least, set_size, 0.0)[0])


def _probability_of_many(set_size: int, sets: int, log_q: float) -> float:
    """Return the probability that at least ten elements are exposed."""
    needed = -(-MANY // set_size)
    if sets < 1 << 50:
        probabilities = np.array([exp(log_q)])
        return float(binomial_tails.at_least(needed, sets, probabilities)[0])
    log_mean = log(sets) + log_q  # many sets, each rarely exposed: Poisson
    return 1.0 if log_mean > 50 else float(special.gammainc(needed, exp(log_mean)))
