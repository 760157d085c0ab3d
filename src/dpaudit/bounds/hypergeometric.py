"""The bound for a uniformly random half of the canaries, all guesses "included".

Half of ``n`` canaries, ``h = n // 2``, was included, each subset of that size with the
same probability. The guesser guesses "included" for ``r`` canaries, a number fixed
before the run, and abstains on the others. ``V`` of them were included.

*Inclusions are not independent here*: one more included canary is one less elsewhere,
so the smallest change of the included set is a swap of two canaries. Under add/remove
adjacency a swap changes two records, and (epsilon, delta)-DP gives, for any event,
``P_S'(E) <= e^c P_S(E) + d`` with ``c = 2 epsilon`` and ``d = (1 + e^epsilon) delta``.
Under replace-one adjacency it changes one, and ``c = epsilon``, ``d = delta``.

**Theorem.** Let ``X`` have Fisher's noncentral hypergeometric distribution with odds
``e^c``: ``P[X = v]`` is proportional to ``C(r, v) C(n - r, h - v) e^(c v)``. At delta
= 0, V is dominated by X in likelihood ratio. In general

    P[V >= t] <= P[X >= t] + h (n - h) d g,
    g = P[X >= t] P[X < t] / (P[X = t] t (n - r - h + t)).

*Proof.* Let ``G`` be the guessed set, a function of the output, and ``F(v) = P[V =
v]``. Take all triples of a half ``S``, a canary ``i`` outside and a canary ``j`` inside
it, and let ``S' = S - j + i``. If i is in G, j is not, and S has v of G, then S' has v
+ 1 of G. A given S with v of G has ``(r - v)(h - v)`` such pairs; a given S' with v + 1
of G comes from ``(v + 1)(n - r - h + v + 1)`` of them. For a function ``f`` of v with
values in [0, g], the guarantee holds for the test function "f(v) if i in G, j not in G
and S has v of G": its mean under S' is at most e^c times that under S, plus ``d g``.
Summing over all triples and dividing by the number of halves,

    sum_v f(v) [(v + 1)(n - r - h + v + 1) F(v + 1) - e^c (r - v)(h - v) F(v)]
        <= h (n - h) d g.                                                         (1)

At d = 0, with f = 1 at one v, (1) bounds ``F(v + 1) / F(v)`` by the same ratio of X:
that is domination in likelihood ratio, and so in every tail. For d > 0 take the f that
solves ``u(v) f(v - 1) - e^c b(v) f(v) = 1[v >= t] - P[X >= t]`` with ``u(v) = v (n - r
- h + v)`` and ``b(v) = (r - v)(h - v)``, Stein's equation of X. As ``P[X = v] e^c b(v)
= P[X = v + 1] u(v + 1)``, its solution is ``P[X >= t] P[X <= v] / (P[X = v] e^c b(v))``
below t and ``P[X < t] P[X > v] / (P[X = v] e^c b(v))`` from t on, so it is 0 or more;
it is largest at ``t - 1``, where it is g, because b falls and u rises (write ``A(v)``
for the first without its constant: ``A(v) = (1 + u(v) A(v - 1)) / (e^c b(v))`` and, by
induction, ``A(v - 1) <= 1 / (e^c b(v) - u(v))`` wherever that is positive). The left
side of (1) is then ``P[V >= t] - P[X >= t]``.

If all other canaries are guessed "excluded", ``2 V + n - r - h`` guesses are correct:
that gives the same events, so the bound is the same. With guesses of both kinds and
abstentions a swap may change the number of correct guesses by one or by two, and no
such theorem is proved: ``RandomHalf`` has guesses "included" only.

All p-values, at every epsilon and delta, bound the probability of one event, "at least
so many of the guessed canaries were included".

Reference: docs/explanation/bounds.md#a-random-half, a random half.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1, inf, log
from typing import ClassVar, final

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound, add_price
from dpaudit.bounds.readings import HalfCounts
from dpaudit.errors import InvalidRunError
from dpaudit.privacy.guarantees import Adjacency, Guarantee
from dpaudit.stats.hypergeometric import NoncentralTails

__all__ = ["HypergeometricBound", "group_claim"]


@final
@dataclass(frozen=True, slots=True)
class HypergeometricBound(GameBound[HalfCounts]):
    """The bound where a uniformly random half of the canaries was included.

    Example:
        >>> counts = HalfCounts(canaries=1000, guesses=500, correct=400)
        >>> print(HypergeometricBound().epsilon_lower(counts, delta=0.0, alpha=0.05))
        epsilon >= 1.249 at delta = 0 (95 % confidence, for any \
mechanism; method hypergeometric)
    """

    method: ClassVar[str] = "hypergeometric"
    reference: ClassVar[str] = "docs/explanation/bounds.md#a-random-half"

    def log_p_value(self, counts: HalfCounts, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim."""
        log_p = self.log_p_of(counts, delta=delta)
        _validate.nonnegative("epsilon", epsilon)
        return log_p(epsilon)

    def log_p_of(self, counts: HalfCounts, *, delta: float) -> Callable[[float], float]:
        """Return the log of the p-value as a function of epsilon."""
        _validate.probability("delta", delta)
        n, h = counts.canaries, counts.included
        r, t = counts.guesses, counts.correct
        if t == 0:
            return lambda _epsilon: 0.0
        tails = NoncentralTails(t, ones=h, zeros=n - h, drawn=r)
        swaps = log(h) + log(n - h) - log(t) - log(n - r - h + t) if delta else -inf

        def log_p(epsilon: float) -> float:
            odds, slack = group_claim(epsilon, delta, records=counts.records_per_swap)
            tail = tails.at(odds)
            if not slack:
                return min(0.0, tail.log_upper)
            price = swaps + log(slack) + tail.log_lower - tail.log_mass
            # g as a multiple of the tail, so that neither is lost to rounding.
            return add_price(tail.log_upper, exp(min(price + tail.log_upper, 0.0)))

        return log_p

    def log_p_claim(
        self, counts: HalfCounts, claim: Guarantee, *, alpha: float
    ) -> float:
        """Return the log of the p-value of a claim, a point or a whole curve.

        Raises:
            InvalidRunError: ``records_per_swap`` is 1, but the claim is not for
                replace-one adjacency.
        """
        replaced = claim.adjacency is Adjacency.REPLACE_ONE
        if counts.records_per_swap == 1 and not replaced:
            raise InvalidRunError(
                f"a swap of two canaries changes two records where the claim is for "
                f"{claim.adjacency}: records_per_swap must be 2"
            )
        return GameBound.log_p_claim(self, counts, claim, alpha=alpha)


def group_claim(epsilon: float, delta: float, *, records: int) -> tuple[float, float]:
    """Return the (epsilon, delta) implied for groups of records by group privacy.

    Example:
        >>> group_claim(0.5, 1e-5, records=1)
        (0.5, 1e-05)
        >>> group_claim(0.0, 1e-5, records=3)[1] == 3 * 1e-5
        True
    """
    _validate.nonnegative("epsilon", epsilon)
    _validate.probability("delta", delta)
    growth = _group_growth(epsilon, records=records)
    return records * epsilon, min(1.0, delta * growth) if delta else 0.0


def _group_growth(epsilon: float, *, records: int) -> float:
    """Return the factor by which delta grows from one record to a group."""
    if records == 1 or epsilon == 0:
        return float(records)
    if epsilon * records > 700:
        return inf
    return expm1(records * epsilon) / expm1(epsilon)
