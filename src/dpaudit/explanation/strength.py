"""What an audit that refuted nothing would have caught.

"No violation found" is worth what the audit could have refuted. With a model of the
training it is by how much the noise would have had to be too small; without one, how
well guesses would have had to do (``dpaudit.game.strength``).
"""

from math import ceil

from dpaudit.dpsgd.planning.forecasts import noise_fault
from dpaudit.explanation.model import Model
from dpaudit.game.result import Result
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.game.strength import would_catch
from dpaudit.game.verdict import CHANCE
from dpaudit.privacy.guarantee import Guarantee

__all__ = ["strength"]


def strength(audit: Result, claim: Guarantee, model: Model | None) -> str:
    """Return what would have been caught; "" where nobody computed it."""
    if model is not None and isinstance(audit.design.rules, OneRun | AdaptiveRounds):
        return _noise(audit, claim, model)
    return would_catch(audit, claim)


def _noise(audit: Result, claim: Guarantee, model: Model) -> str:
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
            f"too small would have been refuted with chance {CHANCE:g}."
        )
    return (
        f"It would have caught noise {ceil(100 * fault) / 100:.2f} times too small "
        f"with chance {CHANCE:g}; smaller faults may go unseen."
    )
