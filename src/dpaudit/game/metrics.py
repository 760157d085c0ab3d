"""A result as a flat dict, for any logger.

Names are stable: the meaning of a name never changes. Each number comes with what is
needed to read it: the bound with its delta, alpha, tier and method, the verdict with
the claim and the threat model. Model-based numbers have ``tier_b`` in their names. A
name is omitted if the result has no value for it: an invalid run has neither bound nor
p-value, and does not state whether the claim is refuted.

Numbers are those of the result and may be infinite: an accountant's curve may give no
finite epsilon at a delta of 0.
"""

from typing import TYPE_CHECKING, TypeAlias

from dpaudit.bounds.bound import ParameterBound
from dpaudit.game.text.results import not_exercised
from dpaudit.game.verdict import Verdict

if TYPE_CHECKING:
    from dpaudit.game.result import Result, TrainingRecord

__all__ = ["Metric", "metrics_of"]

Metric: TypeAlias = float | int | bool | str

# What an invalid run does not report.
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
    """Return a result as a flat dict with stable names."""
    metrics = {**_verdict(result), **_evidence(result)}
    if result.training is not None:
        metrics |= _training(result.training)
    if result.verdict is Verdict.INVALID_RUN:
        metrics = {name: metrics[name] for name in metrics if name not in _ABOUT_CLAIM}
    return {f"dpaudit/{name}": value for name, value in metrics.items()}


def _verdict(result: "Result") -> dict[str, Metric]:
    bound, test = result.bound, result.claim_test
    metrics: dict[str, Metric] = {"verdict": str(result.verdict)}
    if result.reason:
        metrics["reason"] = result.reason
    return metrics | {
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
    metrics: dict[str, Metric] = {
        "ceiling": result.ceiling,
        "canaries": result.design.canaries,
        "guesses": guesses,
        "right": right,
    }
    if result.detectable_accuracy is not None:
        metrics["detectable_accuracy"] = result.detectable_accuracy
    if result.commitment is not None:
        metrics["commitment"] = result.commitment.sha256
    if unseen := not_exercised(result):
        metrics["not_exercised"] = ", ".join(unseen)
    return metrics


def _training(training: "TrainingRecord") -> dict[str, Metric]:
    metrics: dict[str, Metric] = {
        "steps": training.steps,
        "evidence_share": training.evidence_share,
    }
    return metrics | ({} if training.family is None else _tier_b(training.family))


def _tier_b(family: ParameterBound) -> dict[str, Metric]:
    return {
        f"tier_b/{family.parameter}_lower": family.parameter_lower,
        "tier_b/model_epsilon": family.model_epsilon,
        "tier_b/family": family.family,
    }
