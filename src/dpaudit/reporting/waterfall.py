"""The gap waterfall: from the epsilon that is claimed to the bound that was found.

Each rung is a row of text with a bar beside it: what is left, what this rung took, and
how well the level is known. The bars share one scale from 0, so that they line up down
the page; all their numbers stand in the text, so nothing is lost without them.
"""

from dataclasses import dataclass
from math import isfinite
from typing import final

from dpaudit.explanation import Explanation, Step
from dpaudit.reporting import svg
from dpaudit.reporting.numbers import at_least, plain, signed

__all__ = ["Bar", "rungs"]

_WIDE, _HIGH = 1000.0, 20.0
_NOTHING = 5e-4  # a remainder that rounds to 0.000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row of the waterfall.

    Attributes:
        name: What it is called.
        plain: The same in plain words; "" if that is plain.
        takes: What it takes away, as text; "" for the claim and the bound found.
        leaves: What it leaves, as text.
        within: How well that is known, as text; "" if exactly.
        bar: Its bar.
        sentence: What it is.
        advice: What could be done about it; "" if nothing.
        end: Whether it is the claim or the bound found, rather than a gap.
    """

    name: str
    plain: str = ""
    takes: str = ""
    leaves: str
    within: str = ""
    bar: str
    sentence: str
    advice: str = ""
    end: bool = False


def rungs(explanation: Explanation) -> tuple[Bar, ...]:
    """Return the rows of the waterfall, from the claim down to the bound."""
    scale = _scale(explanation)
    before = [explanation.claimed, *(step.leaves for step in explanation.steps)]
    rows = [_claimed(explanation, scale)]
    rows += [
        _rung(step, above, scale)
        for step, above in zip(explanation.steps, before, strict=False)
    ]
    if abs(explanation.remainder) >= _NOTHING and isfinite(explanation.remainder):
        rows.append(_remainder(explanation, before[-1], scale))
    rows.append(_found(explanation, scale))
    return tuple(rows)


def _scale(explanation: Explanation) -> float:
    """Return the epsilon at the right end of every bar."""
    levels = [explanation.claimed, explanation.found]
    levels += [v for s in explanation.steps for v in (s.leaves, s.high)]
    finite = max((v for v in levels if isfinite(v)), default=1.0) or 1.0
    # What is infinite sticks out.
    return finite if all(map(isfinite, levels)) else 1.2 * finite


def _claimed(explanation: Explanation, scale: float) -> Bar:
    claimed = plain(explanation.claimed)
    return Bar(
        name="claimed",
        leaves=claimed,
        bar=_bar([(0.0, explanation.claimed, "left")], f"claimed: {claimed}", scale),
        sentence="What the mechanism is said to keep, at the delta of this audit.",
        end=True,
    )


def _rung(step: Step, above: float, scale: float) -> Bar:
    takes, leaves = signed(-step.takes), plain(step.leaves)
    known = isfinite(step.low) and isfinite(step.high) and step.high > step.low
    within = f"{plain(step.low)} to {plain(step.high)}" if known else ""
    return Bar(
        name=step.name,
        plain=step.plain,
        takes=takes,
        leaves=leaves,
        within=within,
        bar=_bar(
            _parts(above, step.leaves),
            f"{step.name} changes it by {takes} and leaves {leaves}",
            scale,
            whisker=(step.low, step.high) if known else None,
        ),
        sentence=step.sentence,
        advice="" if step.advice is None else str(step.advice),
    )


def _remainder(explanation: Explanation, above: float, scale: float) -> Bar:
    change = signed(explanation.remainder)
    return Bar(
        name="not explained",
        takes=change,
        leaves=at_least(explanation.found),
        bar=_bar(_parts(above, explanation.found), f"not explained: {change}", scale),
        sentence="What no step accounts for: the luck of this run, and what the levels "
        "above are uncertain by.",
    )


def _found(explanation: Explanation, scale: float) -> Bar:
    found = at_least(explanation.found)
    return Bar(
        name="found",
        leaves=found,
        bar=_bar([(0.0, explanation.found, "bound")], f"found: {found}", scale),
        sentence="The lower bound on epsilon that this audit states.",
        end=True,
    )


def _parts(above: float, leaves: float) -> list[tuple[float, float, str]]:
    """Return what is left, and what was taken or, rarely, added."""
    low, high = sorted((above, leaves))
    return [(0.0, low, "left"), (low, high, "taken" if leaves <= above else "added")]


def _bar(
    parts: list[tuple[float, float, str]],
    title: str,
    scale: float,
    whisker: tuple[float, float] | None = None,
) -> str:
    def at(value: float) -> float:
        return _WIDE * min(1.0, max(0.0, value / scale))

    marks = [
        svg.rect(at(low), 0, at(high) - at(low), _HIGH, look)
        for low, high, look in parts
    ]
    if whisker is not None:
        low, high = (at(v) for v in whisker)
        marks.append(svg.bracket(low, high, _HIGH / 2))
    return svg.stretched(width=_WIDE, height=_HIGH, title=title, content="".join(marks))
