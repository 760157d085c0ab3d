"""Plans an audit of DP-SGD with Dirac canaries, and forecasts its result.

The inputs are the training run (steps, sampling rate, noise), the number of coordinates
and alpha. The plan gives the number of canaries at each coordinate, the rules, the
smallest fault that would be detected, the mean and the spread of the bound, and what
limits it. Everything is computed from the exact posterior of simulated coordinates. It
uses none of the audit's coins, so following the plan keeps the audit valid; if the
training differs from the inputs, the bound is weaker, never wrong.

Two kinds of rules are compared. In one run, the most confident guesses are submitted at
once and the exact bound counts them. In rounds, one canary of each coordinate is
guessed and revealed, then the next: more is known about the later ones, and a guess
counts by its confidence. One more canary at a coordinate is one more to guess, but
hides the others a little more, so the best number is neither 1 nor large; for detecting
faults it is small.

A *fault* is noise smaller than configured, by a factor. The guesser measures the noise,
as ``dpaudit.training.opacus`` does, so its confidence is that of the actual noise.
"""

from dataclasses import replace

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.bounds.power import mechanism_ceiling
from dpaudit.dpsgd.planning.candidates import (
    SIZES,
    Candidate,
    Purpose,
    Wanted,
    best_of,
    tried,
)
from dpaudit.dpsgd.planning.forecasts import (
    FINAL,
    LARGEST_FAULT,
    Forecast,
    all_right,
    best_forecast,
    forecast_bound,
    forecast_of,
    noise_fault,
    simulated_distribution,
)
from dpaudit.dpsgd.planning.guess_distribution import GuessDistribution
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, Guarantee

__all__ = ["plan_audit"]

_BETTER = 0.985  # of the fault that the plan detects


@progress_note("planning the audit")
def plan_audit(
    training: TrainingSetup,
    *,
    claim: ApproxDP,
    coordinates: int,
    alpha: float = 0.05,
    per_coordinate: int | None = None,
    guarantee: Guarantee | None = None,
    in_rounds: bool = True,
    purpose: Purpose | str = Purpose.FAULTS,
) -> Plan:
    """Return a plan for the most powerful audit, with its expected result.

    Args:
        training: The training run.
        claim: The claim about it, for adding or removing a record.
        coordinates: The number of coordinates that can hold canaries; fewer are used if
            more would cost more for delta than they are worth.
        alpha: Significance level.
        per_coordinate: Canaries at each coordinate, if that is fixed.
        guarantee: What an accountant proves about the training, for the ceiling; if
            ``in_rounds`` is false, guesses are compared with the whole of it.
        in_rounds: Whether rounds may be played. They test a claim at one point.
        purpose: ``"faults"`` to detect the smallest fault, ``"bound"`` for the largest
            mean bound of correct training.

    Example:
        >>> plan = plan_audit(
        ...     TrainingSetup(steps=1, rate=1.0, noise=1.0),
        ...     claim=ApproxDP(epsilon=2.0, delta=1e-5),
        ...     coordinates=1000,
        ...     per_coordinate=1,
        ...     in_rounds=False,
        ... )
        >>> 1 < plan.fault < 3
        True
        >>> plan.design().canaries
        1000
    """
    _check(training, claim, coordinates, alpha)
    wanted = Wanted(
        training=training,
        coordinates=int(coordinates),
        claim=claim,
        tested=claim if in_rounds or guarantee is None else guarantee,
        alpha=alpha,
        purpose=_purpose(purpose),
        in_rounds=in_rounds,
    )
    # If participation is unknown to the adversary, a coordinate holds one canary.
    sizes = (1,) if training.sufficient().takes_turns else SIZES
    if per_coordinate is not None:
        sizes = (per_coordinate,)
    candidates = tried(wanted, sizes)
    best = best_of(candidates, wanted.purpose)
    plan = _plan(wanted, candidates, best, guarantee)
    # The best candidate may have been lucky: another is tried if it is better now.
    other = best_of(plan.candidates, wanted.purpose)
    if plan.fault and other.fault and other.fault < _BETTER * plan.fault:
        again = _plan(wanted, plan.candidates, other, guarantee)
        plan = min((plan, again), key=lambda each: each.fault or LARGEST_FAULT)
    return plan


def _plan(
    wanted: Wanted,
    candidates: tuple[Candidate, ...],
    best: Candidate,
    guarantee: Guarantee | None,
) -> Plan:
    """Return the plan for a candidate, from a longer simulation."""
    training, claim, alpha = wanted.training, wanted.claim, wanted.alpha
    distribution = simulated_distribution(training, best.per_coordinate, FINAL, seed=1)
    forecast = _forecast(wanted, best, distribution)
    delta, rules = claim.delta, forecast.rules
    expected = forecast_bound(forecast, delta, alpha)
    fault = noise_fault(
        training,
        rules,
        best.per_coordinate,
        best.coordinates,
        claim if rules.adaptive else wanted.tested,
        alpha,
        near=best.fault or 2.0,
    )
    chosen = replace(
        best,
        rules=rules,
        bound=expected.mean,
        fault=fault if wanted.purpose is Purpose.FAULTS else None,
    )
    return Plan(
        training=training,
        claim=claim,
        purpose=wanted.purpose,
        available=wanted.coordinates,
        coordinates=best.coordinates,
        alpha=alpha,
        per_coordinate=best.per_coordinate,
        rules=rules,
        expected=expected,
        true_epsilon=guarantee and guarantee.epsilon_at(delta),
        ceiling=guarantee and mechanism_ceiling(guarantee, delta=delta, alpha=alpha),
        all_right=all_right(forecast, distribution, best.coordinates, delta, alpha),
        fault=fault,
        candidates=tuple(chosen if each is best else each for each in candidates),
    )


def _forecast(
    wanted: Wanted, best: Candidate, distribution: GuessDistribution
) -> Forecast:
    """Return the forecast of the chosen audit, from a longer simulation."""
    delta, alpha = wanted.claim.delta, wanted.alpha
    if wanted.purpose is Purpose.BOUND:
        in_rounds = best.rules.adaptive
        return best_forecast(
            distribution, best.coordinates, delta, alpha, in_rounds=in_rounds
        )
    return forecast_of(best.rules, distribution, best.coordinates, delta, alpha)


def _purpose(purpose: Purpose | str) -> Purpose:
    try:
        return Purpose(purpose)
    except ValueError:
        known = " or ".join(repr(str(each)) for each in Purpose)
        raise InvalidInputError(f"purpose must be {known}, got {purpose!r}") from None


def _check(
    training: TrainingSetup, claim: ApproxDP, coordinates: int, alpha: float
) -> None:
    _validate.whole_number("coordinates", coordinates, least=1)
    _validate.error_level("alpha", alpha)
    if not isinstance(training, TrainingSetup) or not isinstance(claim, ApproxDP):
        raise InvalidInputError(
            "a plan is for TrainingSetup(...) and a claim ApproxDP(epsilon=..., "
            f"delta=...), got training={training!r} and claim={claim!r}"
        )
    if claim.adjacency is Adjacency.REPLACE_ONE:
        raise InvalidInputError(
            f"a Dirac canary is there or not, so the claim must be for adding or "
            f"removing a record, or for one that adds nothing, got claim={claim!r}"
        )
