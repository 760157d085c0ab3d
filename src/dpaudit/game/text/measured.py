"""What a check measured, in a few words, for the table of the first screen.

A stage may have several findings; the first code in this list that is among them
represents the stage. If there is none, the sentence of its first finding is shown.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Final

from dpaudit.game.text.terms import Template, Values, counted, with_error

__all__ = ["MEASURED"]


def _rate(v: Values) -> str:
    """Return the rate with its standard error, of ``batches`` batches of n records.

    The spread expected of their sizes is ``sqrt(n rate (1 - rate))``.
    """
    spread = v.expected_spread * sqrt(max(v.batches, 0))
    error = v.accounted * (1 - v.accounted) / spread if spread > 0 else 0.0
    # There is none if every record is in every batch.
    rate = with_error(v.rate, error) if 0 < error < 1 else f"{v.rate:.4g}"
    return f"rate {rate} (accounted: {v.accounted:.4g})"


def _noise(v: Values) -> str:
    steps = counted(v.steps, "step")
    return f"{with_error(v.ratio, v.error)} of configured, {steps}"


def _independent(v: Values) -> str:
    return f"no correlation beyond chance, {counted(v.steps, 'step')}"


def _released(v: Values) -> str:
    return f"as left by the last of {counted(v.steps, 'step')}"


MEASURED: Final[Mapping[str, Template]] = {
    "sampling.batches": _rate,
    "sampling.turns": "no {record} in more than {most} of {batches} {term_batches}",
    "records.pass_clipping": "canaries are {record}s of up to {norm:g} C",
    "probe.taken_out": "one {record} adds at most {change:.4g} clipping norm",
    "probe.clipped": "one {record} adds at most {change:.4g} clipping norm",
    "probe.exchanged": "unchanged when another {record} is swapped",
    "clients.cut": "canary clients of {norm:g} C are clipped",
    "users.cut": "canary users of {norm:g} C are clipped",
    "noise.measured": _noise,
    "noise.correlations": _independent,
    "strategy.sensitivity": "sensitivity {sensitivity:.4g} C (accounted: "
    "{claimed:.4g} C)",
    "accounting.compared": "{steps} steps, each as accounted",
    "accounting.curve_tested": "tested with canaries, {steps} steps",
    "interference.compared": "no other dependence on {record}s was found",
    "interference.update_compared": "no other dependence on {record}s was found",
    "side_paths.watched": "nothing else changed in {steps} steps",
    "released.as_left": _released,
}
