"""How large may sets grow for one-run auditing of count-in-sets to stay tight?

A noiseless count of ``s`` has a loss of ``a`` or more with chance ``exp(-s D(a) + O(log
s))``, where ``D(a) = ln 2 - H(p(a))`` is below ``ln 2`` for finite ``a`` and rises to
it. Hence ``n exp(-s D(a))`` grows for every
finite ``a`` if and only if ``limsup s(n) / log2 n <= 1``. (The paper prints ``s = o(log
n)``. That is enough, but not needed: with ``s = log2(n) / 2`` the sets whose coins all
fell alike hold ``2 sqrt(n)`` elements on average.) At the boundary itself, ``s = log2
n``, the number grows like ``n^(1 - D(a) / ln 2)``: at ``a = 4`` like ``n^0.13``, and at
``a = 8`` like ``n^0.004``, which shows at ``n = 2^4096`` and not at any size in use.

Numbers are kept as logarithms, so that sizes far beyond floats show the trend. Tails
are exact up to sets of 2^40; above, the large deviation ``exp(-s D(a))`` stands for
them, which is off by a factor of the order of ``sqrt(s)``.

Reference: Keinan, Shenfeld and Ligett, Proposition "Condition for asymptotic tightness
of ORA for count-in-sets", https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, isqrt, log
from types import MappingProxyType
from typing import final

import numpy as np
from scipy import special

from dpaudit.stats import binomial_tails
from dpaudit.stats.binomial import log_tails
from dpaudit.theory.tightness import MANY, Exposure, Tightness

__all__ = ["SET_SIZES", "SetSize", "count_in_sets_tightness"]

_LOG2_SIZES = (16, 64, 256, 1024, 4096)
_THRESHOLDS = (1.0, 2.0, 4.0)
_EXACT_UP_TO = 1 << 40  # larger sets go by their large deviations


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SetSize:
    """How the sets of count-in-sets grow with the number of elements.

    Attributes:
        formula: What is written for it.
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
    """Return the evidence for noiseless count-in-sets, up to sizes beyond floats.

    Args:
        sets: How the sets grow.
        thresholds: Sizes of loss.
        log2_sizes: The numbers of elements are two to these powers.

    Returns:
        The evidence; the note says what the sharp condition says.

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
        chance=_chance_of_many(set_size, (1 << power) // set_size, log_q),
    )


def _log_set_tail(set_size: int, threshold: float) -> float:
    """Return the log of the chance that a noiseless count has such a loss."""
    p = float(special.expit(threshold))
    if set_size > _EXACT_UP_TO:
        rate = float(special.rel_entr(p, 0.5) + special.rel_entr(1 - p, 0.5))
        return -exp(log(set_size) + log(rate)) if set_size >> 1000 == 0 else -inf
    # a product that is whole but for rounding must not be rounded up
    least = ceil(set_size * p * (1 - 1e-15))
    return min(0.0, log(2) + log_tails(least, set_size, 0.0)[0])


def _chance_of_many(set_size: int, sets: int, log_q: float) -> float:
    """Return the chance that at least ten elements are exposed."""
    needed = -(-MANY // set_size)
    if sets < 1 << 50:
        chances = np.array([exp(log_q)])
        return float(binomial_tails.at_least(needed, sets, chances)[0])
    log_mean = log(sets) + log_q  # so many sets, each so rarely: Poisson
    return 1.0 if log_mean > 50 else float(special.gammainc(needed, exp(log_mean)))
