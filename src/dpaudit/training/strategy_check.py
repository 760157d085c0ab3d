"""Check by computation that noise is large enough for the strategy that correlates it.

Correlated noise protects a record that joins steps ``u`` as independent noise would
protect the vector ``C u`` (``dpsgd.strategy``). So the noise multiplier is the noise
scale divided by the largest ``|C u|`` over all allowed participation patterns, or by
more if columns of ``C`` have negative inner products. For a strategy scaled to unit
columns the square root of the number of joins may be used instead; if the columns are
longer than 1, the noise is too small by that factor, and no statistics are needed to
detect it.

If joins are at least as many steps apart as there are bands, the largest ``|C u|`` is
computed exactly. With more bands the columns of different joins overlap; then some
patterns are tried, and the largest value is a lower bound: if it is too large for the
noise, that is a fault; if not, the check proves nothing.
"""

from math import isfinite

from dpaudit import _validate
from dpaudit.dpsgd.participation import Participation, separated_sensitivity, signals
from dpaudit.dpsgd.strategy import Strategy, length
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding, Stage, fault, inspected

__all__ = ["check_strategy"]

_ROUNDING = 1e-3  # relative; strategies are often optimised in single precision


def check_strategy(
    strategy: Strategy,
    *,
    steps: int,
    separation: int,
    claimed: float,
    most: int | None = None,
) -> tuple[Finding, Finding | None]:
    """Return a check of the strategy's sensitivity, and a fault if it is too large.

    Args:
        strategy: How noise is correlated.
        steps: Number of steps.
        separation: The least number of steps from one join to the next.
        claimed: The sensitivity that the noise was scaled for, over the clipping norm:
            ``sqrt(joins)`` if columns were taken to have length 1.
        most: Most joins of one record; as many as fit if left out.

    Raises:
        InvalidInputError: The strategy is for another number of steps.

    Example:
        >>> from dpaudit.dpsgd.strategy import Toeplitz
        >>> strategy = Toeplitz(coefficients=(1.0, 0.75), steps=4)
        >>> from dpaudit.game.text.findings import sentence
        >>> check, fault = check_strategy(
        ...     strategy, steps=4, separation=2, claimed=2**0.5
        ... )
        >>> print(sentence(fault))
        noise is too small by the strategy's largest column norm, 1.25 (a sensitivity \
of 1.768 clipping norms; expected: 1.414); likely cause: a strategy whose columns were \
not scaled to length 1
        >>> check_strategy(strategy, steps=4, separation=2, claimed=1.768)[1] is None
        True
    """
    _validate.whole_number("steps", steps, least=1)
    _validate.whole_number("separation", separation, least=1)
    if not (claimed > 0 and isfinite(claimed)):
        raise InvalidInputError(
            "claimed is the sensitivity that noise was scaled for, over the clipping "
            f"norm, and must be above 0, got claimed={claimed!r}"
        )
    if strategy.steps not in (None, steps):
        raise InvalidInputError(
            f"the strategy is for {strategy.steps} steps, and steps={steps}; pass the "
            "number of steps that it was made for"
        )
    sensitivity, exact = _sensitivity(strategy, steps, separation, most)
    numbers = {"sensitivity": sensitivity, "exact": exact, "claimed": claimed}
    check = inspected(
        Stage.NOISE_SCALE, "strategy.sensitivity", separation=separation, **numbers
    )
    factor = sensitivity / claimed
    if factor <= 1 + _ROUNDING:
        return check, None
    columns = [length(strategy.column(t)[: steps - t]) for t in range(steps)]
    largest = max(columns)
    by_column = abs(largest / factor - 1) < _ROUNDING
    cause = "other_participation"
    if largest > 1 + _ROUNDING:
        cause = "columns" if by_column else "columns_longest"
    return check, fault(
        Stage.NOISE_SCALE,
        "strategy.noise_too_small",
        factor=factor,
        by_column=by_column,
        longest=largest,
        cause=cause,
        **numbers,
    )


def _sensitivity(
    strategy: Strategy, steps: int, separation: int, most: int | None
) -> tuple[float, bool]:
    """Return the largest ``|C u|`` or a lower bound on it, and whether it is exact."""
    if strategy.bands <= separation:
        largest = separated_sensitivity(
            strategy, steps=steps, separation=separation, most=most
        )
        return largest, True
    participation = Participation(
        every=separation, cohorts=min(separation, steps), most=most
    )
    return float(signals(participation, strategy, steps).max()), False
