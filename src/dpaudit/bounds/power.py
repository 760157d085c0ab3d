"""What an audit of a number of guesses can detect, before or after it is made.

*Ceiling of a design*: the bound if every guess is correct.

*Ceiling of a mechanism*: let ``M'`` run ``M`` with probability ``w`` and output nothing
otherwise. All its deltas are ``w`` times those of ``M``, and with probability ``w`` the
two are indistinguishable. A test of (epsilon, delta) at level alpha may reject ``M'``
with ``w = delta / delta_M(epsilon)`` only with probability alpha, hence rejects ``M``
with probability at most ``alpha / w``. So no valid one-run audit reliably certifies
more than the mechanism's epsilon at ``delta / alpha``; with ``k`` independent runs, at
``delta / alpha^(1/k)``. A method that reports more assumes more.

*Accuracy that refutes a claim*: more correct guesses are never weaker evidence against
a claim, so it is refuted from some number of correct guesses on. The accuracy needed to
reach that number with a given power depends on no model of the mechanism, only on the
binomial distribution.

Reference: docs/explanation/why-the-bound-is-lower.md#the-ceiling-of-one-run.
"""

from math import inf, log, ulp

from scipy import special

from dpaudit import _validate
from dpaudit.bounds.bound import AnyBound, PointEstimate
from dpaudit.bounds.curve import curve_refuted
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.methods import judge_claim
from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from dpaudit.stats.search import least_yes

__all__ = [
    "design_ceiling",
    "detectable_accuracy",
    "estimate",
    "least_refuting",
    "mechanism_ceiling",
]


def design_ceiling(*, canaries: int, guesses: int, delta: float, alpha: float) -> float:
    """Return the bound if all guesses of a design are made at once and correct.

    For a finished run, ``Reading.perfect`` gives the reading with all guesses correct.

    Example:
        >>> round(design_ceiling(canaries=1000, guesses=100, delta=0.0, alpha=0.05), 2)
        3.49
    """
    perfect = Counts(canaries=canaries, guesses=guesses, correct=guesses)
    return ExactBound().epsilon_lower(perfect, delta=delta, alpha=alpha).epsilon_lower


def mechanism_ceiling(
    mechanism: Guarantee, *, delta: float, alpha: float, runs: int = 1
) -> float:
    """Return the largest epsilon that valid audits of a mechanism reliably certify.

    Example:
        >>> from dpaudit.privacy.guarantees import GaussianDP
        >>> round(mechanism_ceiling(GaussianDP(mu=1.0), delta=1e-5, alpha=0.05), 3)
        3.616
        >>> two = mechanism_ceiling(GaussianDP(mu=1.0), delta=1e-5, alpha=0.05, runs=2)
        >>> round(two, 3)
        4.013
    """
    _validate.probability("delta", delta)
    _validate.error_level("alpha", alpha)
    _validate.whole_number("runs", runs, least=1)
    return mechanism.epsilon_at(min(1.0, delta / alpha ** (1 / runs)))


def estimate(counts: Counts) -> PointEstimate:
    """Return the epsilon at which this many correct guesses are expected.

    Reference: Keinan, Shenfeld and Ligett, "def:asymptotic-validity".

    Example:
        >>> print(estimate(Counts(canaries=100, guesses=100, correct=75)))
        epsilon about 1.1 (an estimate, not a bound)
    """
    r, v = counts.guesses, counts.correct
    if r == 0:
        raise InvalidInputError("an estimate needs at least one guess")
    if v == r:
        return PointEstimate(epsilon_estimate=inf)
    if v == 0:
        return PointEstimate(epsilon_estimate=0.0)
    return PointEstimate(epsilon_estimate=max(0.0, log(v / (r - v))))


def least_refuting(
    claim: Guarantee,
    *,
    canaries: int,
    guesses: int,
    alpha: float,
    bound: AnyBound | None = None,
) -> int | None:
    """Return the least number of correct guesses that refutes a claim, if any does.

    Args:
        claim: The claim that is tested.
        canaries: Canaries of the design, guessed or not.
        guesses: Guesses of the design.
        alpha: Probability of refuting a true claim.
        bound: The bound to use if guesses are not made all at once.

    Example:
        >>> from dpaudit.privacy.guarantees import PureDP
        >>> least_refuting(PureDP(epsilon=1.0), canaries=100, guesses=100, alpha=0.05)
        81
        >>> least_refuting(PureDP(epsilon=9.0), canaries=100, guesses=100, alpha=0.05)
    """
    _validate.error_level("alpha", alpha)
    exact = bound is None or isinstance(bound, ExactBound)
    is_curve = not isinstance(claim, PureDP | ApproxDP)

    def refutes(correct: int) -> bool:
        counts = Counts(
            canaries=canaries,
            guesses=guesses,
            correct=correct,
        )
        if exact and is_curve:  # its p-value takes much longer
            return curve_refuted(counts, claim, alpha=alpha)
        return judge_claim(claim, counts, alpha=alpha, bound=bound).refuted

    return least_yes(refutes, 0, guesses)


def detectable_accuracy(
    claim: Guarantee,
    *,
    canaries: int,
    guesses: int,
    alpha: float,
    power: float = 0.9,
    bound: AnyBound | None = None,
    abstained: int = 0,
) -> float | None:
    """Return how accurate independent guesses must be to refute a claim.

    It is the smallest success probability ``a``, rounded up, at which Bin(guesses, a)
    correct guesses refute the claim with the given power; None if even all correct
    guesses do not. Abstentions are not among these guesses, and count as wrong.

    Args:
        claim: The claim that is tested.
        canaries: Canaries of the design, guessed or not.
        guesses: Guesses of the design.
        alpha: Probability of refuting a true claim.
        power: Probability with which the claim must be refuted.
        bound: The bound to use if guesses are not made all at once.
        abstained: How many of the guesses were not made.

    Example:
        >>> from dpaudit.privacy.guarantees import PureDP
        >>> claim = PureDP(epsilon=1.0)
        >>> caught = detectable_accuracy(claim, canaries=1000, guesses=1000, alpha=0.05)
        >>> round(caught, 4)
        0.7716
    """
    _validate.probability("power", power)
    v = least_refuting(
        claim,
        canaries=canaries,
        guesses=guesses,
        alpha=alpha,
        bound=bound,
    )
    made = guesses - abstained
    if v is None or v > made:
        return None
    if v == 0:
        return 0.0
    a = float(special.betaincinv(v, made - v + 1, power))
    step = ulp(a)
    while special.betainc(v, made - v + 1, a) < power:  # round up
        a, step = min(1.0, a + step), 2 * step
    return a
