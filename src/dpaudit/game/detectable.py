"""What an audit would have detected, from its design alone.

"No violation detected" means as much as the audit had power. Where guesses are counted,
the power is stated as the accuracy that independent guesses would have needed.
Elsewhere it is simulated: randomised response of increasing epsilon, every canary
guessed, with independent guesses. Neither needs a model of what was audited, so a
verifier of the audit can compute it too.
"""

from functools import lru_cache

import numpy as np
from scipy import special

from dpaudit.bounds.power import detectable_accuracy
from dpaudit.bounds.readings import Counts
from dpaudit.game.design import Design
from dpaudit.game.findings import Finding, noted
from dpaudit.game.result import Result, could_refute
from dpaudit.game.verdict import POWER
from dpaudit.privacy.guarantees import Guarantee

__all__ = ["detectable_by_guesses"]

_MAX_EPSILON = 32.0
_SIMULATIONS = 30  # simulated audits of each epsilon
_HALVINGS = 6
_MAX_GUESSES = 200_000  # of each simulated audit; more would take long


def detectable_by_guesses(audit: Result, claim: Guarantee) -> Finding | None:
    """Return what the audit would have detected; None if that was not computed.

    Args:
        audit: The audit; only its design, and how its guesses are read, matter.
        claim: The claim tested.

    Example:
        >>> from dpaudit import OneRun, PureDP
        >>> from dpaudit.game.result import judge
        >>> claim = PureDP(epsilon=9.0)
        >>> design = Design(canaries=100, rules=OneRun(guesses=100), claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=60)
        >>> audit = judge(counts, design=design, commitment=None)
        >>> detectable_by_guesses(audit, claim).code
        'could_not_refute'
    """
    if audit.reading.counted is not None:
        return _accuracy(audit, claim, audit.reading.counted)
    alpha, bound = audit.design.alpha, audit.design.rules.bound()
    if not could_refute(claim, audit.reading, alpha=alpha, bound=bound):
        return noted("could_not_refute")
    single = not (audit.reading.tally or audit.design.rules.uniforms_needed)
    if single and audit.design.guesses <= _MAX_GUESSES:
        return _leak(audit.design, claim)
    return None


def _accuracy(audit: Result, claim: Guarantee, counts: Counts) -> Finding:
    a = detectable_accuracy(
        claim,
        canaries=counts.canaries,
        guesses=counts.guesses,
        alpha=audit.design.alpha,
        power=POWER,
        bound=audit.design.rules.bound(),
        abstained=counts.abstained,
    )
    if a is None:
        return noted("could_not_refute")
    return noted("detectable.accuracy", accuracy=a, epsilon=_as_epsilon(a))


def _as_epsilon(accuracy: float) -> float:
    """Return the epsilon of randomised response guessed equally well."""
    if not 0 < accuracy < 1:
        return 0.0
    return max(0.0, float(special.logit(accuracy)))


@lru_cache(maxsize=64)  # verification asks for the same design repeatedly
def _leak(design: Design, claim: Guarantee) -> Finding:
    high = 1.0
    while not _detected(design, claim, high):
        high *= 2
        if high > _MAX_EPSILON:
            return noted("detectable.hardly")
    low = high / 2 if high > 1 else 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        detected = _detected(design, claim, middle)
        low, high = (low, middle) if detected else (middle, high)
    return noted("detectable.leak", epsilon=high)


def _detected(design: Design, claim: Guarantee, epsilon: float) -> bool:
    rng, accuracy = np.random.default_rng(14), float(special.expit(epsilon))
    rules, refuted = design.rules, 0
    for _ in range(_SIMULATIONS):
        right = rng.random(design.guesses) < accuracy
        reading = rules.read_alike(right, accuracy, canaries=design.canaries)
        bound, alpha = rules.bound(), design.alpha
        refuted += bound.judge_claim(reading, claim, alpha=alpha).refuted
    return refuted >= POWER * _SIMULATIONS
