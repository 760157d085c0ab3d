"""A result as a flat dict, for whatever logger a project has.

Names are stable: one is never given another meaning. Each number stands beside what it
needs to be read: the bound beside its delta, alpha, tier and method, the verdict beside
the claim and the threat model. What assumes a family (tier B) says so in its name. A
name is left out where a result has nothing to say under it: a void one has neither
bound nor p-value, and does not say whether the claim is refuted.

Numbers are as the result holds them, so they may be infinite: an accountant's curve may
promise no epsilon at all at a delta of 0.
"""

from typing import TYPE_CHECKING, TypeAlias

from dpaudit.bounds.bound import ParameterBound
from dpaudit.game.text.results import not_exercised
from dpaudit.game.verdict import Verdict

if TYPE_CHECKING:
    from dpaudit.game.result import Result, TrainingRecord

__all__ = ["Metric", "metrics_of"]

Metric: TypeAlias = float | int | bool | str

# What a void audit does not say.
_ABOUT_CLAIM = {
    "epsilon_lower",
    "p_value",
    "refuted",
    "ceiling",
    "detectable_accuracy",
    "tier_b/mu_lower",
    "tier_b/model_epsilon",
    "tier_b/family",
}


def metrics_of(result: "Result") -> dict[str, Metric]:
    """Return what a result says as a flat dict with stable names."""
    found = {**_verdict(result), **_evidence(result)}
    if result.training is not None:
        found |= _training(result.training)
    if result.verdict is Verdict.INVALID_RUN:
        found = {name: found[name] for name in found if name not in _ABOUT_CLAIM}
    return {f"dpaudit/{name}": value for name, value in found.items()}


def _verdict(result: "Result") -> dict[str, Metric]:
    bound, test = result.bound, result.claim_test
    word: dict[str, Metric] = {"verdict": str(result.verdict)}
    if result.reason:
        word["reason"] = result.reason
    return word | {
        "epsilon_lower": bound.epsilon_lower,
        "delta": bound.delta,
        "alpha": bound.alpha,
        "tier": bound.tier,
        "method": bound.method,
        "claim": str(test.claim),
        "claimed_epsilon": test.claim.epsilon_at(bound.delta),
        "p_value": test.p_value,
        "refuted": test.refuted,
        "threat_model": str(result.design.threat_model),
    }


def _evidence(result: "Result") -> dict[str, Metric]:
    right, guesses = result.reading.correct_and_guesses()
    found: dict[str, Metric] = {
        "ceiling": result.ceiling,
        "canaries": result.design.canaries,
        "guesses": guesses,
        "right": right,
    }
    if result.detectable_accuracy is not None:
        found["detectable_accuracy"] = result.detectable_accuracy
    if result.commitment is not None:
        found["commitment"] = result.commitment.sha256
    if unseen := not_exercised(result):
        found["not_exercised"] = ", ".join(unseen)
    return found


def _training(training: "TrainingRecord") -> dict[str, Metric]:
    found: dict[str, Metric] = {
        "steps": training.steps,
        "evidence_share": training.evidence_share,
    }
    return found | ({} if training.family is None else _tier_b(training.family))


def _tier_b(family: ParameterBound) -> dict[str, Metric]:
    return {
        f"tier_b/{family.parameter}_lower": family.parameter_lower,
        "tier_b/model_epsilon": family.model_epsilon,
        "tier_b/family": family.family,
    }
