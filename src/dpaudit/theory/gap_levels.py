"""The privacy levels between a claim and an audit's bound, and their description.

Each level is an epsilon against an adversary that is weaker in one more respect; the
drop from the level before is one gap. Levels are computed separately, so a drop need
not be positive: where it is not, the ladder of levels rises and its text reports it. A
level is known exactly or estimated with an interval (``Estimate``).

A second, shorter ladder may be known too: the levels of the same number of guesses, on
average over outputs, if all other coins are known, if those revealed before are, and if
none is. The first ladder removes knowledge at the worst output, and so shows no
interference if a rare output reveals everything; the second does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isnan
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit.errors import InvalidInputError
from dpaudit.stats.intervals import mean_limits

__all__ = [
    "Estimate",
    "GapLevel",
    "Gaps",
    "no_more_than",
]

_INTERVAL_ALPHA = 0.01  # probability that an interval of a simulation misses the truth
_SMALLEST_DROP_SHOWN = 5e-4  # smaller drops vanish in three decimals
_STEP_NAMES = {
    "confidence": "Confidence",
    "interference": "Interference",
    "outputs": "Averaging over outputs",
    "elements": "Averaging over elements",
    "guessing": "Guessing",
    "exposure": "Exposure",
    "statistics": "Statistics",
}
_REASONS = {
    "confidence": "a test with false-positive rate {alpha:g} must not refute the "
    "mechanism that runs this one with probability {alpha:g} and outputs nothing "
    "otherwise",
    "interference": "the other coins are unknown, and hide each one",
    "outputs": "the output of one run is seldom the worst possible",
    "elements": "the {guesses} elements guessed are not all as exposed as the one "
    "exposed most",
    "guessing": "the guesser is correct less often than the best one",
    "exposure": "interference, outputs, elements and the guesser, which cannot be "
    "separated without a model of the mechanism",
    "statistics": "a bound from {guesses} guesses must allow for luck",
}
_REASONS_NOTHING_LEFT = {
    "interference": "with the other coins unknown no output reveals anything about a "
    "coin"
}
_REASONS_FOR_MORE = {
    "confidence": "the mechanism's own guarantee is weaker than the claim",
    "outputs": "the most exposed of {elements} elements loses more than the level at "
    "delta / alpha, which exempts the rarest losses",
    "guessing": "guesses were correct more often than those of the best guesser would "
    "be on average, by luck or because the mechanism leaks more than was stated",
    "exposure": "guesses were correct more often than the claim allows, by luck or "
    "because the mechanism leaks more than is claimed",
    "statistics": "a bound is never negative and grows faster than the accuracy, so "
    "that lucky runs outweigh unlucky ones",
}
_WITHIN_CLAIM = (
    "guesses were more accurate than the level before, which exempts rare losses, by "
    "no more than the claim or luck allows"
)
_ADVICE = {
    "confidence": "combine independent runs, or accept a larger alpha",
    "interference": "audit adaptively, or let fewer elements share an output",
    "outputs": "abstain when the output reveals little, or make more runs",
    "elements": "make fewer guesses, about the most exposed elements only",
    "guessing": "use a better guesser, at best the maximum-likelihood one",
    "exposure": "explain the audit with a model of the mechanism, and use the best "
    "guesser there is",
    "statistics": "use more canaries",
}
_KNOWLEDGE = ("full knowledge", "adaptivity", "one run")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and an interval that contains the truth; a point if the value is exact.

    Attributes:
        value: The best estimate.
        low: Lower end of the interval.
        high: Upper end; infinite if nothing is known above.

    Example:
        >>> print(Estimate.exact(0.75))
        0.75
        >>> print(Estimate(value=0.61, low=0.6, high=0.62))
        0.61 [0.6, 0.62]
    """

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if any(map(isnan, (self.low, self.value, self.high))) or not (
            self.low <= self.value <= self.high
        ):
            raise InvalidInputError(
                "expected low <= value <= high, got "
                f"low={self.low!r}, value={self.value!r}, high={self.high!r}"
            )

    @classmethod
    def exact(cls, value: float) -> Self:
        """Return an estimate for a value that is known exactly."""
        return cls(value=value, low=value, high=value)

    @classmethod
    def mean(cls, draws: ArrayLike, *, span: tuple[float, float]) -> Self:
        """Return the mean of independent draws from an interval, with 99 % limits.

        The limits hold for any number of draws, two or more.
        """
        values = np.asarray(draws, np.float64)
        mean = float(values.mean())
        if len(values) < 2:
            return cls(value=mean, low=span[0], high=span[1])
        low, high = mean_limits(
            mean, float(values.var()), len(values), span=span, alpha=_INTERVAL_ALPHA
        )
        return cls(value=mean, low=low, high=high)

    @property
    def is_exact(self) -> bool:
        """Whether the interval is a point."""
        return self.low == self.high

    def __str__(self) -> str:
        if self.is_exact:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def no_more_than(most: Estimate) -> str:
    """Return a sentence that states the limit of all valid audits.

    Example:
        >>> no_more_than(Estimate.exact(0.6616))
        'The median bound of any valid audit of these canaries, however it guesses, is \
at most epsilon = 0.6616.'
    """
    return (
        "The median bound of any valid audit of these canaries, however it guesses, is "
        f"at most epsilon = {most}."
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GapLevel:
    """One level of the ladder.

    Attributes:
        name: The step to this level.
        epsilon: The level after the step; may be infinite.
        low: Lower end of its interval; equal to ``epsilon`` if exact.
        high: Upper end.
        meaning: What the level is.
    """

    name: str
    epsilon: float
    low: float
    high: float
    meaning: str

    def __post_init__(self) -> None:
        if any(map(isnan, (self.low, self.epsilon, self.high))) or not (
            self.low <= self.epsilon <= self.high
        ):
            raise InvalidInputError(
                f"expected low <= epsilon <= high, got low={self.low!r}, "
                f"epsilon={self.epsilon!r}, high={self.high!r}"
            )

    @classmethod
    def of(cls, name: str, level: Estimate, meaning: str) -> Self:
        """Return a level from an estimate, exact or with an interval."""
        return cls(
            name=name,
            epsilon=level.value,
            low=level.low,
            high=level.high,
            meaning=meaning,
        )

    @property
    def shown(self) -> str:
        """The level as text, with its interval unless it is exact."""
        if self.high - self.low < 2 * _SMALLEST_DROP_SHOWN or self.low == self.high:
            return _number(self.epsilon)
        return f"{_number(self.epsilon)} [{_number(self.low)}, {_number(self.high)}]"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Where the epsilon of a claim is lost on the way to a bound.

    Attributes:
        levels: The levels, from the claim down to the expected bound.
        spread: Standard deviation of the bound from run to run.
        remainder: An observed bound minus the expected one, if one was given.
        delta: The delta of the claim and the bound.
        alpha: Probability that the bound is wrong.
        elements: Coins of the audit.
        guesses: Guesses of the audit.
        knowledge: The levels of as many guesses, on average over outputs, if all other
            coins are known, if those of earlier turns are, and if none is; empty if
            not available.
        most: The epsilon that no valid audit exceeds in half of its runs, if known.

    Example:
        >>> claim = GapLevel(name="claim", epsilon=inf, low=inf, high=inf,
        ...     meaning="claimed")
        >>> left = GapLevel(name="interference", epsilon=0.0, low=0.0, high=0.0,
        ...     meaning="others unknown")
        >>> print(Gaps(levels=(claim, left), spread=0.0, remainder=None, delta=0.0,
        ...     alpha=0.05, elements=2, guesses=2))
        The mechanism claims no privacy at all (epsilon = infinity). Interference \
takes everything: with the other coins unknown no output reveals anything about a \
coin. The largest gap is interference; to narrow it, audit adaptively, or let fewer \
elements share an output.
    """

    levels: tuple[GapLevel, ...]
    spread: float
    remainder: float | None
    delta: float
    alpha: float
    elements: int
    guesses: int
    knowledge: tuple[GapLevel, ...] = ()
    most: Estimate | None = None

    def __post_init__(self) -> None:
        names = [level.name for level in self.levels]
        if (
            len(names) < 2
            or names[0] != "claim"
            or not set(names[1:]) <= set(_STEP_NAMES)
        ):
            raise InvalidInputError(
                f"levels must be a claim and some of {', '.join(_STEP_NAMES)}, got "
                f"{names}"
            )
        known = tuple(level.name for level in self.knowledge)
        if known not in ((), _KNOWLEDGE):
            raise InvalidInputError(
                f"knowledge must be empty or {', '.join(_KNOWLEDGE)}, got {known}"
            )

    @property
    def drops(self) -> dict[str, float]:
        """The drop of each step; infinite if only the level after it is finite."""
        return {b.name: _minus(a.epsilon, b.epsilon) for a, b in self._steps()}

    @property
    def largest(self) -> str | None:
        """The name of the step with the largest drop, if there is any drop."""
        drops = {b.name: _certain_drop(a, b) for a, b in self._steps()}
        largest = max(drops, key=lambda name: drops[name])
        return largest if drops[largest] > _SMALLEST_DROP_SHOWN else None

    @property
    def hidden(self) -> float:
        """The drop from not knowing the other coins, on average over outputs."""
        if not self.knowledge:
            return 0.0
        return _minus(self.knowledge[0].epsilon, self.knowledge[-1].epsilon)

    @property
    def recovered(self) -> float:
        """The part of ``hidden`` recovered by revealing coins in turn."""
        if not self.knowledge:
            return 0.0
        return _minus(self.knowledge[1].epsilon, self.knowledge[-1].epsilon)

    def taken_by(self, level: GapLevel) -> str:
        """Return the drop to a level as text; empty for the first level."""
        known = {b.name: _minus(a.epsilon, b.epsilon) for a, b in self._known()}
        drop = (self.drops | known).get(level.name)
        if drop is None:
            return ""
        if drop == inf:
            return "all but" if level.epsilon >= _SMALLEST_DROP_SHOWN else "all"
        if drop == -inf:
            return "-infinity"
        return "-" if abs(drop) < _SMALLEST_DROP_SHOWN else f"{drop:.3f}"

    def table(self) -> str:
        """Return the ladder as lines of text."""
        rows = [("step", "takes", "leaves", "what is left")]
        for level in self.levels:
            rows.append((level.name, self.taken_by(level), level.shown, level.meaning))
        if self.knowledge:
            rows += [("", "", "", ""), ("known", "takes", "leaves", "of other coins")]
        for level in self.knowledge:
            rows.append((level.name, self.taken_by(level), level.shown, level.meaning))
        one, two, three = (max(len(row[i]) for row in rows) for i in range(3))
        return "\n".join(
            f"{a:<{one}}  {b:>{two}}  {c:<{three}}  {d}".rstrip() for a, b, c, d in rows
        )

    def __str__(self) -> str:
        sentences = [
            self._claimed(),
            *self._changes(),
            *self._on_average(),
            self._verdict(),
        ]
        if self.most is not None:
            sentences.append(no_more_than(self.most))
        if self.remainder is not None:
            sentences.append(self._rest(self.remainder))
        return " ".join(sentences)

    def _steps(self) -> Iterator[tuple[GapLevel, GapLevel]]:
        return pairwise(self.levels)

    def _known(self) -> Iterator[tuple[GapLevel, GapLevel]]:
        return pairwise(self.knowledge)

    def _claimed(self) -> str:
        first = self.levels[0]
        epsilon = first.epsilon
        at = f" at delta = {self.delta:g}" if self.delta else ""
        if first.low < first.high:
            return (
                f"What the mechanism guarantees is not known; its epsilon{at} is at "
                f"least {_number(first.low)}."
            )
        if epsilon == inf:
            return f"The mechanism claims no privacy at all (epsilon = infinity{at})."
        return f"The mechanism claims epsilon = {_number(epsilon)}{at}."

    def sentence(self, name: str) -> str:
        """Return a sentence on the effect of a step on the level, and the reason."""
        before, after = next(pair for pair in self._steps() if pair[1].name == name)
        if _minus(before.epsilon, after.epsilon) > _SMALLEST_DROP_SHOWN:
            how, why = _taken(before, after)
        elif _minus(after.epsilon, before.epsilon) > _SMALLEST_DROP_SHOWN:
            how, why = _added(before, after)
            if name == "exposure" and after.low <= self.levels[0].epsilon:
                why = _WITHIN_CLAIM
        else:
            return f"{_STEP_NAMES[name]} takes nothing here."
        because = why.format(
            alpha=self.alpha, guesses=self.guesses, elements=self.elements
        )
        return f"{how}: {because}."

    def advice(self, name: str) -> str:
        """Return advice that usually narrows the gap of a step."""
        return _ADVICE[name]

    def _changes(self) -> Iterator[str]:
        for before, after in self._steps():
            if (
                max(_certain_drop(before, after), _certain_drop(after, before))
                > _SMALLEST_DROP_SHOWN
            ):
                yield self.sentence(after.name)

    def _on_average(self) -> Iterator[str]:
        """Yield a sentence on the drop from not knowing other coins, if significant."""
        if not self.knowledge:
            return
        full, in_turn, none = self.knowledge
        if _certain_drop(full, none) <= _SMALLEST_DROP_SHOWN:
            return
        took = f"{_number(self.hidden)} of it"
        if none.high < _SMALLEST_DROP_SHOWN:
            took = "all of it"
        elif full.epsilon == inf:
            took = f"all but {_number(none.epsilon)} of it"
        sentence_on_average = (
            f"On average over outputs, {self.guesses} guesses by one who knew all "
            f"other coins would leave {_number(full.epsilon)}; interference takes "
            f"{took}"
        )
        if _certain_drop(in_turn, none) > _SMALLEST_DROP_SHOWN:
            back = "all of it" if in_turn.epsilon == inf else _number(self.recovered)
            sentence_on_average += f", and revealing coins in turn gives {back} back"
        yield f"{sentence_on_average}."

    def _verdict(self) -> str:
        name = self.largest
        if name is None:
            return "No step takes anything that can be distinguished from zero."
        if name in ("outputs", "elements") and self._is_hidden():
            return (
                f"The largest gap is {name}, and interference is behind it: to one who "
                "knew all other coins outputs would reveal more. To narrow it, "
                f"{_ADVICE['interference']}."
            )
        return f"The largest gap is {name}; to narrow it, {_ADVICE[name]}."

    def _is_hidden(self) -> bool:
        """Whether not knowing other coins costs more than all other steps to here."""
        if not self.knowledge:
            return False
        full, _, none = self.knowledge
        top = next(
            before for before, after in self._steps() if after.name != "confidence"
        )
        return _certain_drop(full, none) > max(0.0, _minus(top.epsilon, full.epsilon))

    def _rest(self, remainder: float) -> str:
        if abs(remainder) < _SMALLEST_DROP_SHOWN:
            return "The bound observed is the one expected."
        side = "above" if remainder > 0 else "below"
        return (
            f"The bound observed lies {_number(abs(remainder))} {side} the one "
            f"expected; from run to run it varies by {_number(self.spread)}."
        )


def _taken(before: GapLevel, after: GapLevel) -> tuple[str, str]:
    who, why = _STEP_NAMES[after.name], _REASONS[after.name]
    left = _number(after.epsilon)
    if after.high < _SMALLEST_DROP_SHOWN:
        what = "everything" if before.epsilon == inf else "all that was left"
        return f"{who} takes {what}", _REASONS_NOTHING_LEFT.get(after.name, why)
    if before.epsilon == inf:
        return f"{who} leaves only {left}", why
    lost = _number(before.epsilon - after.epsilon)
    return f"{who} takes {lost} and leaves {left}", why


def _added(before: GapLevel, after: GapLevel) -> tuple[str, str]:
    gained, to = _number(after.epsilon - before.epsilon), _number(after.epsilon)
    why = _REASONS_FOR_MORE.get(
        after.name, "the numbers that it is made of are not exact"
    )
    if after.epsilon == inf and after.name in ("guessing", "exposure"):
        return (
            f"{_STEP_NAMES[after.name]} lifts it to infinity (every guess was correct)",
            why,
        )
    return f"{_STEP_NAMES[after.name]} adds {gained} and gives {to}", why


def _certain_drop(before: GapLevel, after: GapLevel) -> float:
    """Return the drop that remains if both levels err towards each other."""
    return _minus(before.low, after.high)


def _minus(a: float, b: float) -> float:
    return 0.0 if a == b else a - b


def _number(value: float) -> str:
    return "infinity" if value == inf else f"{value:.3f}"
