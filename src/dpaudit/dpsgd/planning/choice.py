"""What to fix before DP-SGD is audited with Dirac canaries, and what to expect of it.

From the training (steps, sampling rate, noise), the number of coordinates and alpha:
how many canaries to put at each coordinate, by which rules to play, how large the bound
will be and how much it varies, what limits it, and which fault would be caught. All of
it is computed from the exact posterior of simulated coordinates, so it uses none of the
audit's coins and following it keeps the audit valid; if the training is another than
was said, the bound is weaker, never wrong.

Two kinds of rules are compared. In one run, the surest guesses are handed in at once
and the exact bound counts them. In rounds, one canary of each coordinate is guessed and
revealed, then the next: more is known about the later ones, and a guess counts by how
sure it is. One more canary at a coordinate is one more to guess and hides the others a
little more, so the best number is neither 1 nor large.

A *fault* is noise smaller than was said, by a factor. The guesser measures the noise,
as ``dpaudit.training.opacus`` does, so it is as sure as it may be.
"""

from dpaudit import _validate
from dpaudit.bounds.ceilings import mechanism_ceiling
from dpaudit.dpsgd.planning.forecasts import (
    FINAL,
    all_right,
    best_forecast,
    expected_bound,
    noise_fault,
    simulated_law,
)
from dpaudit.dpsgd.planning.guess_law import Training
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.dpsgd.planning.sizes import SIZES, best_size
from dpaudit.errors import InvalidInputError
from dpaudit.game.rules import OneRun
from dpaudit.privacy.adjacency import Adjacency
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.privacy.guarantees import ApproxDP

__all__ = ["plan_audit"]


def plan_audit(
    training: Training,
    *,
    claim: ApproxDP,
    coordinates: int,
    alpha: float = 0.05,
    per_coordinate: int | None = None,
    guarantee: Guarantee | None = None,
    in_rounds: bool = True,
) -> Plan:
    """Return the audit to be expected to show the most, and what it will show.

    Args:
        training: What will be trained.
        claim: What is claimed of it, for adding or removing a record.
        coordinates: How many coordinates can hold canaries.
        alpha: Chance of being wrong.
        per_coordinate: Canaries at each coordinate, if that is fixed.
        guarantee: What an accountant proves of the training, for the ceiling; if it is
            a whole curve and guesses are counted, faults are held against it.
        in_rounds: Whether rounds may be played. Guesses in one run can be held against
            an accountant's whole curve, guesses in rounds against one point of it.

    Example:
        >>> plan = plan_audit(
        ...     Training(steps=1, rate=1.0, noise=2.15),
        ...     claim=ApproxDP(epsilon=2.0, delta=1e-5),
        ...     coordinates=1000,
        ...     per_coordinate=6,
        ... )
        >>> 0.7 < plan.expected.mean < 0.9
        True
        >>> plan.design().canaries
        6000
    """
    _check(training, claim, coordinates, alpha)
    delta = claim.delta
    sizes = SIZES if per_coordinate is None else (per_coordinate,)
    s, curve = best_size(
        training, sizes, coordinates=coordinates, delta=delta, alpha=alpha
    )
    law = simulated_law(training, s, FINAL, seed=1)
    forecast = best_forecast(law, coordinates, delta, alpha, in_rounds=in_rounds)
    # Guesses that are counted are held against the accountant's whole curve.
    counted = isinstance(forecast.rules, OneRun)
    tested = guarantee if counted and guarantee is not None else claim
    return Plan(
        training=training,
        claim=claim,
        coordinates=coordinates,
        alpha=alpha,
        per_coordinate=s,
        rules=forecast.rules,
        expected=expected_bound(forecast, delta, alpha),
        true_epsilon=guarantee and guarantee.epsilon_at(delta),
        ceiling=guarantee and mechanism_ceiling(guarantee, delta=delta, alpha=alpha),
        all_right=all_right(forecast, law, coordinates, delta, alpha),
        fault=noise_fault(training, forecast.rules, s, coordinates, tested, alpha),
        curve=curve,
    )


def _check(training: Training, claim: ApproxDP, coordinates: int, alpha: float) -> None:
    _validate.whole_number("coordinates", coordinates, least=1)
    _validate.error_level("alpha", alpha)
    if not isinstance(training, Training) or not isinstance(claim, ApproxDP):
        raise InvalidInputError(
            f"a plan is for Training(...) and a claim ApproxDP(epsilon=..., delta=...),"
            f" got training={training!r} and claim={claim!r}"
        )
    if claim.adjacency is not Adjacency.ADD_REMOVE:
        raise InvalidInputError(
            f"a Dirac canary is there or not, so the claim must be for adding or "
            f"removing a record, got claim={claim!r}"
        )
