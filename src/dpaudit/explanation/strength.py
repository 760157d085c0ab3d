"""What an audit that refuted nothing would have caught.

"No violation found" is worth what the audit could have refuted. Where guesses
were counted it is how often independent guesses would have had to be right; with a
model of the training, by how much the noise would have had to be too small. Elsewhere
it is what such guesses would have done, found by trying: randomised response of rising
epsilon, every canary guessed, right guesses spread evenly.
"""

from dataclasses import replace
from math import ceil

import numpy as np
from scipy import special

from dpaudit.bounds.claims import CountingBound, test_claim
from dpaudit.bounds.reads import Bets, Counts, Ranked
from dpaudit.bounds.strength import accuracy_caught
from dpaudit.dpsgd.planning.forecasts import noise_fault
from dpaudit.explanation.model import Model
from dpaudit.explanation.seen import as_epsilon
from dpaudit.game.result import AuditResult, bound_of
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.theory.measured import Measured

__all__ = ["strength"]

_CHANCE = 0.9
_LARGEST = 32.0  # epsilon
_TRIES = 30  # simulated audits of each epsilon
_HALVINGS = 6


def strength(audit: AuditResult, claim: Guarantee, model: Model | None) -> str:
    """Return what would have been caught; "" where nobody computed it."""
    if model is not None and isinstance(audit.design.rules, OneRun | AdaptiveRounds):
        return _noise(audit, claim, model)
    reading = audit.reading
    if isinstance(reading, Counts):
        return _accuracy(audit, claim, reading)
    if isinstance(reading, Ranked | Bets):
        return _leak(audit, claim, reading)
    if audit.ceiling < claim.epsilon_at(audit.design.bound_delta):
        return (
            "It could not have refuted the claim: with every guess right the bound "
            "would still be below it."
        )
    return ""


def _noise(audit: AuditResult, claim: Guarantee, model: Model) -> str:
    rules = audit.design.rules
    assert isinstance(rules, OneRun | AdaptiveRounds)
    tested = claim if isinstance(rules, OneRun) else audit.design.claim
    stated = audit.design.setting.get("fault")
    fault = (
        stated
        if isinstance(stated, float)
        else noise_fault(
            model.training,
            rules,
            model.per_coordinate,
            model.coordinates,
            tested,
            audit.design.alpha,
        )
    )
    if fault is None:
        return (
            "It would hardly have caught a fault of the noise: not even noise 32 times "
            f"too small would have been refuted with chance {_CHANCE:g}."
        )
    return (
        f"It would have caught noise {ceil(100 * fault) / 100:.2f} times too small "
        f"with chance {_CHANCE:g}; smaller faults may go unseen."
    )


def _accuracy(audit: AuditResult, claim: Guarantee, counts: Counts) -> str:
    own = bound_of(audit)
    a = accuracy_caught(
        claim,
        canaries=counts.canaries,
        guesses=counts.guesses,
        alpha=audit.design.alpha,
        chance=_CHANCE,
        bound=own if isinstance(own, CountingBound) else None,
        alternatives=counts.alternatives,
        records_per_coin=counts.records_per_coin,
    )
    if a is None:
        return (
            "It could not have refuted the claim, or hardly: not even with every guess "
            f"right would it have done so with chance {_CHANCE:g}."
        )
    share = Measured.exact(a)
    epsilon = as_epsilon(share, counts).value if 0 < a < 1 else 0.0
    return (
        f"Guesses right {ceil(1000 * a) / 10:g} % of the time would have refuted it "
        f"with chance {_CHANCE:g}, as those about randomised response of epsilon = "
        f"{ceil(100 * epsilon) / 100:.2f} are; smaller faults may go unseen."
    )


def _leak(audit: AuditResult, claim: Guarantee, reading: Ranked | Bets) -> str:
    def caught(epsilon: float) -> bool:
        rng = np.random.default_rng(14)
        chance = float(special.expit(epsilon))
        n = audit.design.guesses
        times = 0
        for _ in range(_TRIES):
            right = rng.random(n) < chance
            if isinstance(reading, Ranked):
                tried: Ranked | Bets = replace(reading, right=right)
            else:
                stakes = np.full(n, min(chance, 1 - 1e-9))
                tried = replace(reading, right=right, stakes=stakes)
            times += test_claim(claim, tried, alpha=audit.design.alpha).refuted
        return times >= _CHANCE * _TRIES

    high = 1.0
    while not caught(high):
        high *= 2
        if high > _LARGEST:
            return (
                "It would hardly have refuted the claim: not even guesses that are all "
                f"but always right would have done so with chance about {_CHANCE:g}."
            )
    low = high / 2 if high > 1 else 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if caught(middle) else (middle, high)
    return (
        f"Randomised response of epsilon = {ceil(100 * high) / 100:.2f}, all of it "
        f"guessed, would have been refuted with chance about {_CHANCE:g}; smaller "
        "faults may go unseen."
    )
