"""The levels from the claim down to the bound, each computed by itself.

With a model of the training run (``Model``) every gap of ``dpaudit.theory.gaps`` is
computed separately, from the exact posterior of many simulated coordinates. In an
adaptive game the last canary of a coordinate is guessed when all others are revealed:
nothing masks it, and what masks the earlier ones is attributed to the elements.

Without a model, only the accuracy of the guesses is known, and its gap to the claim is
a single step, *exposure*.

In both cases the accuracy is the observed one, so that a run's luck is in the step
before the last; the last is the typical bound of guesses with that accuracy.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.power import mechanism_ceiling
from dpaudit.dpsgd.planning.expected_one_run import forecast_one_run
from dpaudit.dpsgd.planning.forecasts import FINAL, simulated_distribution
from dpaudit.dpsgd.planning.guess_distribution import GuessDistribution
from dpaudit.dpsgd.sums import canary_log_odds
from dpaudit.errors import InvalidInputError
from dpaudit.explanation.accuracy import GuessAccuracy, as_epsilon, excess
from dpaudit.explanation.model import Model
from dpaudit.game.result import Result
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.theory.gap_levels import Estimate, GapLevel, Gaps
from dpaudit.theory.gaps import gaps

__all__ = ["known", "law_of", "modelled", "reach", "unmodelled"]

_LOSSES = 400_000  # simulated for the level of a masked canary
_BATCHES = 8  # of these; their scatter gives the error


def law_of(model: Model) -> GuessDistribution:
    """Return how confidently the canaries of a model can be guessed."""
    return simulated_distribution(model.training, model.per_coordinate, FINAL, seed=11)


def modelled(
    audit: Result,
    claim: Guarantee,
    model: Model,
    law: GuessDistribution,
    seen: GuessAccuracy,
    at: float,
) -> Gaps:
    """Return the levels of an audit whose training run is modelled."""
    design = audit.design
    delta, alpha = design.bound_delta, design.alpha
    top = _confidence(model.guarantee or claim, audit)
    hidden = model.per_coordinate > 1 and not design.rules.adaptive
    levels = (
        _claim(claim, delta),
        top,
        _hidden(model, delta / alpha) if hidden else _not_hidden(top),
        GapLevel.of(
            "outputs",
            as_epsilon(_most_exposed(law, model)),
            "the most exposed element, on average over outputs",
        ),
        GapLevel.of(
            "elements",
            as_epsilon(_elements(audit, law, model, seen, at)),
            f"the {seen.guesses} elements guessed, on average",
        ),
        GapLevel.of(
            "guessing", as_epsilon(seen.accuracy), "the guesses that were made"
        ),
        _statistics(seen),
    )
    return _gaps(audit, levels, seen)


def known(
    audit: Result,
    claim: Guarantee,
    mechanism: object,
    seen: GuessAccuracy,
    rng: np.random.Generator | None,
) -> Gaps:
    """Return the levels of an audit whose mechanism is given."""
    design = audit.design
    if audit.reading.counted is None:
        raise InvalidInputError(
            "the gaps of a mechanism are known where guesses are counted, got rules="
            f"{design.rules!r}; explain the result without the mechanism"
        )
    return gaps(
        mechanism,
        elements=design.canaries,
        guesses=seen.guesses,
        delta=design.bound_delta,
        alpha=design.alpha,
        claim=claim,
        efficacy=seen.accuracy,
        observed=audit.bound.epsilon_lower,
        rng=rng,
    )


def unmodelled(audit: Result, claim: Guarantee, seen: GuessAccuracy) -> Gaps:
    """Return the levels of an audit if only the guesses are known."""
    design = audit.design
    levels = (
        _claim(claim, design.bound_delta),
        _confidence(claim, audit),
        GapLevel.of(
            "exposure",
            as_epsilon(seen.accuracy, audit.reading),
            "the guesses that were made",
        ),
        _statistics(seen),
    )
    return _gaps(audit, levels, seen)


def _gaps(audit: Result, levels: tuple[GapLevel, ...], seen: GuessAccuracy) -> Gaps:
    found = audit.bound.epsilon_lower
    return Gaps(
        levels=levels,
        spread=0.0,
        remainder=found - seen.typical,
        delta=audit.design.bound_delta,
        alpha=audit.design.alpha,
        elements=audit.design.canaries,
        guesses=seen.guesses,
    )


def _claim(claim: Guarantee, delta: float) -> GapLevel:
    level = Estimate.exact(claim.epsilon_at(delta))
    return GapLevel.of("claim", level, f"what is claimed at delta = {delta:g}")


def _confidence(guarantee: Guarantee, audit: Result) -> GapLevel:
    at = "the most that a valid audit reliably shows"
    if not audit.design.bound_delta:
        at = "the level of the mechanism"
    return GapLevel.of("confidence", Estimate.exact(reach(guarantee, audit)), at)


def reach(guarantee: Guarantee, audit: Result, *, times: int = 1) -> float:
    """Return the largest epsilon that audits like this one can reliably show.

    Args:
        guarantee: The guarantee of the mechanism.
        audit: The audit; a classic one has as many runs as coins.
        times: The number of such audits that are combined.
    """
    return mechanism_ceiling(
        guarantee,
        delta=audit.design.bound_delta,
        alpha=audit.design.alpha,
        runs=times * audit.design.runs,
    )


def _statistics(seen: GuessAccuracy) -> GapLevel:
    typical = Estimate.exact(seen.typical)
    return GapLevel.of(
        "statistics", typical, f"the typical bound from {seen.guesses} guesses"
    )


def _not_hidden(top: GapLevel) -> GapLevel:
    return replace(
        top, name="interference", meaning="the same: no other canary hides the last one"
    )


def _hidden(model: Model, delta: float) -> GapLevel:
    """Return the level for an adversary without the other coins of the coordinate."""
    s = model.per_coordinate
    coordinates = max(1000, _LOSSES // s // _BATCHES)
    rng = np.random.default_rng(12)
    mechanism = model.training.sufficient().mechanism(
        coordinates=coordinates, per_coordinate=s
    )
    levels = []
    for _ in range(_BATCHES):
        bits = rng.integers(0, 2, coordinates * s, dtype=np.int8)
        # All canaries of a coordinate have the same odds: one of them suffices.
        odds = canary_log_odds(mechanism.run(bits, rng).log_likelihood)[::s]
        levels.append(_level(odds, delta))
    value = float(np.mean(levels))
    # 2.36: the 0.975 quantile of Student's t with 7 degrees of freedom.
    error = 2.36 * float(np.std(levels, ddof=1)) / np.sqrt(_BATCHES)
    level = Estimate(value=value, low=max(0.0, value - error), high=value + error)
    return GapLevel.of("interference", level, "the level to one who knows no coin")


def _level(odds: NDArray[np.float64], delta: float) -> float:
    """Return the epsilon at which log-odds have this delta, in either direction."""
    low, high = 0.0, 50.0
    for _ in range(50):
        middle = (low + high) / 2
        deltas = [
            2 * float(np.mean(np.maximum(0.0, special.expit(x) - _rest(middle, x))))
            for x in (odds, -odds)
        ]
        low, high = (middle, high) if max(deltas) > delta else (low, middle)
    return high


def _rest(epsilon: float, odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``e^epsilon`` times the probability that the coin has the other value."""
    return np.asarray(np.exp(epsilon + special.log_expit(-odds)))


def _most_exposed(law: GuessDistribution, model: Model) -> Estimate:
    """Return the mean accuracy on the most exposed canary."""
    best = np.sort(law.probability().max(axis=0))
    # The distribution of the largest of d draws from the n simulated values.
    n, d = len(best), model.coordinates
    above = ((np.arange(n) + 1) / n) ** d
    return Estimate.exact(float(np.dot(np.diff(above, prepend=0.0), best)))


def _elements(
    audit: Result, law: GuessDistribution, model: Model, seen: GuessAccuracy, at: float
) -> Estimate:
    """Return the mean accuracy of the best guesser on as many canaries."""
    rules = audit.design.rules
    if not rules.fixed:
        guessed = law.confidence[law.confidence >= rules.min_epsilon]
        counts = excess(guessed, at)
        if not counts.sum():
            return Estimate.exact(0.5)
        return Estimate.exact(
            float(np.dot(counts, special.expit(guessed)) / counts.sum())
        )
    whole = max(1, min(model.coordinates, round(seen.guesses / model.per_coordinate)))
    if rules.adaptive:
        ranked = np.sort(law.probability().ravel())[::-1]
        share = max(1, round(len(ranked) * seen.guesses / audit.design.canaries))
        return Estimate.exact(float(ranked[:share].mean()))
    (forecast,) = forecast_one_run(law, model.coordinates, np.array([whole]))
    return Estimate.exact(forecast.right / forecast.guesses)
