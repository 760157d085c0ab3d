"""What an audit would have caught, from its design alone.

"No violation detected" is worth what the audit could have refuted. Where guesses are
counted it is how often independent guesses would have had to be right. Elsewhere it is
what such guesses would have done, found by trying: randomised response of rising
epsilon, every canary guessed, right guesses spread evenly. Neither needs a model of
what was audited, so whoever verifies an audit can say it too.
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

_LARGEST = 32.0  # epsilon
_TRIES = 30  # simulated audits of each epsilon
_HALVINGS = 6
_MOST = 200_000  # guesses of each; more would take long


def detectable_by_guesses(audit: Result, claim: Guarantee) -> Finding | None:
    """Return what would have been caught; None where nobody computed it.

    Args:
        audit: Of which only the design, and how its guesses are read, matter.
        claim: What is tested.

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
    if single and audit.design.guesses <= _MOST:
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
    """Return the epsilon of randomised response that is guessed as well."""
    if not 0 < accuracy < 1:
        return 0.0
    return max(0.0, float(special.logit(accuracy)))


@lru_cache(maxsize=64)  # whoever verifies meets one design again and again
def _leak(design: Design, claim: Guarantee) -> Finding:
    high = 1.0
    while not _caught(design, claim, high):
        high *= 2
        if high > _LARGEST:
            return noted("detectable.hardly")
    low = high / 2 if high > 1 else 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        caught = _caught(design, claim, middle)
        low, high = (low, middle) if caught else (middle, high)
    return noted("detectable.leak", epsilon=high)


def _caught(design: Design, claim: Guarantee, epsilon: float) -> bool:
    rng, chance = np.random.default_rng(14), float(special.expit(epsilon))
    rules, times = design.rules, 0
    for _ in range(_TRIES):
        right = rng.random(design.guesses) < chance
        tried = rules.read_alike(right, chance, canaries=design.canaries)
        bound, alpha = rules.bound(), design.alpha
        times += bound.judge_claim(tried, claim, alpha=alpha).refuted
    return times >= POWER * _TRIES
