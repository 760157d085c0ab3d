"""Rules about more than one point or one run: whole curves, independent runs.

*Curves.* A claim that is a curve is tested at all its points at once, without charge,
by the least p-value (``judge_claim``) or by the certificate of the whole curve. Both
reject from some count on, so that their error is an exact tail.

*Independent runs.* Fisher's product of the exact p-values of two runs, or the exact
p-value of their counts added up. Where the law of one run's count is known, the error
is a sum over pairs of counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import log
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.bound import Bound
from dpaudit.bounds.curve import CurveCertificate
from dpaudit.bounds.independent_runs import IndependentRunsBound
from dpaudit.bounds.methods import judge_claim
from dpaudit.bounds.readings import Counts
from dpaudit.privacy.guarantees import ApproxDP, Guarantee
from dpaudit_lab.calibration.draws import Draws
from dpaudit_lab.calibration.nulls import Null, curve_of, right_tail
from dpaudit_lab.calibration.rules import least_rejected

__all__ = ["CERTIFICATE", "CLAIM_TEST", "CurveRule", "IndependentRule"]

_NEGLIGIBLE = 1e-25  # chance of a count that is left out


class _Refutes(Protocol):
    """From counts, a claim and a level to a verdict."""

    def __call__(self, counts: Counts, claim: Guarantee, alpha: float) -> bool: ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRule:
    """A verdict on a whole curve, by the count of right ones among all guesses.

    Attributes:
        name: What the table calls it.
        refutes: The verdict; it must not change back as the count rises.
    """

    name: str
    refutes: _Refutes

    def guesses(self, canaries: int) -> int:
        """Return how many guesses are counted: all."""
        return canaries

    def critical(self, canaries: int, null: Null, alpha: float) -> int:
        """Return the least count that refutes what is true of a null."""
        return _critical(self, canaries, null, alpha)

    def rejects_null(self, draws: Draws, null: Null, alpha: float) -> NDArray[np.bool_]:
        """Count all guesses, against the whole curve of the null."""
        canaries = draws.bits.shape[1]
        found = draws.count(canaries)
        return np.asarray(found >= self.critical(canaries, null, alpha))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentRule:
    """Two independent runs, each of all canaries, every one guessed.

    Attributes:
        name: What the table calls it.
        bound: How the two are judged together.
    """

    name: str = "two independent runs, r = n"
    bound: Bound[Sequence[Counts]] = field(default_factory=IndependentRunsBound)

    def chance(self, null: Null, *, canaries: int, alpha: float) -> float:
        """Return the exact chance that the null's claim is rejected."""
        tails = np.array(
            [
                right_tail(null, canaries=canaries, guesses=canaries, correct=v)
                for v in range(canaries + 2)
            ]
        )
        law, claim = tails[:-1] - tails[1:], null.claim
        found, second = 0.0, canaries + 1
        for first in np.flatnonzero(law > _NEGLIGIBLE):
            # The more are right in one run, the fewer are needed in the other.
            while second > 0 and self._rejects(
                (int(first), second - 1), canaries, claim, alpha
            ):
                second -= 1
            found += float(law[first] * tails[second])
        return found

    def _rejects(
        self, correct: tuple[int, int], canaries: int, claim: ApproxDP, alpha: float
    ) -> bool:
        runs = [Counts(canaries=canaries, guesses=canaries, correct=v) for v in correct]
        found = self.bound.log_p_value(runs, epsilon=claim.epsilon, delta=claim.delta)
        return found <= log(alpha)


@lru_cache(maxsize=4096)
def _critical(rule: CurveRule, canaries: int, null: Null, alpha: float) -> int:
    claim = curve_of(null)

    def refutes(correct: int) -> bool:
        counts = Counts(canaries=canaries, guesses=canaries, correct=correct)
        return rule.refutes(counts, claim, alpha)

    return least_rejected(refutes, canaries)


def _by_claim_test(counts: Counts, claim: Guarantee, alpha: float) -> bool:
    return judge_claim(claim, counts, alpha=alpha).refuted


def _by_certificate(counts: Counts, claim: Guarantee, alpha: float) -> bool:
    return CurveCertificate(counts=counts, alpha=alpha).refutes(claim)


CLAIM_TEST = CurveRule(name="test of a whole curve, r = n", refutes=_by_claim_test)
CERTIFICATE = CurveRule(
    name="certificate of a whole curve, r = n", refutes=_by_certificate
)
