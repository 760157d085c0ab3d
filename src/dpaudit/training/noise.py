"""Record the noise that was added at each step, and test it.

Sums are over all steps, and each step's own sum of squares is kept, so that a single
step without noise is detected. Pairs are compared in a random sample of steps, drawn by
the key and the number of the step, once there are more than are kept. The level is the
accountant's noise multiplier of each step where it is known, or else the configured
one. The possible rounding error counts in the program's favour (``rounding``). The
added noise, subtracted from a noisy sum, reveals the coins: all of it is sealed with
the key when saved, and ``found`` is for after the game. The tests and their
false-positive rate are in ``noise_faults``.
"""

import secrets
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt
from typing import Final, NoReturn, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.likelihood import State, saved_counts
from dpaudit.dpsgd.strategy import Independent, Strategy, Whitening
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.findings import Finding, Stage, inspected, not_checked
from dpaudit.training import noise_faults
from dpaudit.training.noise_faults import (
    AlikeRows,
    NoiseSeen,
    Steps,
    add_row,
    detectable_step,
    sums_of,
)
from dpaudit.training.rounding import Rounding

__all__ = ["MOST_WATCHED", "Found", "NoiseWatch"]

Findings: TypeAlias = tuple[Finding, ...]
Found: TypeAlias = tuple[Findings, Findings, Findings]

MOST_WATCHED: Final = 240  # coordinates: less than 1 KiB per step
_SEALED: Final = "noise"
_MOST_COMPARED: Final = 1024  # coordinates, in pairs
_HUGE: Final = float(np.finfo(np.float32).max)
_OF_A_STEP: Final = 5  # numbers: squares, own, past, rounding, multiplier
_TOO_COARSE: Final = 0.25  # of the noise: rounding above it makes noise not checked


@final
class NoiseWatch:
    """Records the noise of each step, and tests whether it is as configured.

    Args:
        groups: For each watched coordinate the number of its parameter.
        names: Of all parameters.
        key: Of the run; what is saved is sealed with it.
        strategy: How noise is correlated from step to step, if it is: the correlation
            is undone first, so that the tested noise should be independent.
        most_steps: Number of steps kept for pairwise comparisons.
        types: A number for each coordinate: sums with the same number are kept in the
            same floating-point type. One type for all if left out.

    Example:
        >>> watch = NoiseWatch(np.zeros(64, int), ["fc.weight"], Key(bytes(32)))
        >>> rng = np.random.default_rng(0)
        >>> for _ in range(50):
        ...     watch.observe(0.5 * rng.normal(size=64), 1.0)
        >>> from dpaudit.game.text.findings import sentence
        >>> checks, faults, remarks = watch.found()
        >>> print(sentence(checks[0]))  # doctest: +NORMALIZE_WHITESPACE
        measured 0.501 ± 0.007 times the configured noise in 1 parameter over 50 steps;
        detects a single step with less than 0.51 of it
        >>> faults[0].code, round(faults[0].numbers["ratio"], 3)
        ('noise.scale', 0.501)
    """

    def __init__(
        self,
        groups: NDArray[np.int64],
        names: Sequence[str],
        key: Key,
        strategy: Strategy | None = None,
        *,
        most_steps: int = 4096,
        types: NDArray[np.int64] | None = None,
    ) -> None:
        _validate.whole_number("most_steps", most_steps, least=2)
        self._groups, self._names = np.asarray(groups, np.int64), tuple(names)
        numbers = np.arange(len(self._names))
        if self._groups.ndim != 1 or not np.isin(self._groups, numbers).all():
            raise InvalidInputError(
                f"groups must be a row of numbers of parameters, 0 to "
                f"{len(self._names) - 1}, got {groups!r:.80}"
            )
        self._key, self._most = key, int(most_steps)
        self._steps = array("d")  # ``_OF_A_STEP`` numbers for each
        self._totals = sums_of(np.zeros((0, len(self._groups))))
        self._rows = np.zeros((0, len(self._groups)), np.float32)
        self._numbers = np.zeros(0, np.int64)  # -1 where there is no row
        strategy = strategy or Independent()
        self._correlated = strategy.bands > 1
        self._whitening = Whitening(strategy, len(self._groups))
        self._errors = Whitening(_Absolute(strategy), len(self._groups))
        self._rounding = Rounding(
            np.zeros_like(self._groups) if types is None else types
        )

    def __reduce__(self) -> NoReturn:
        raise InvalidRunError("what tells the coins cannot be pickled")

    def observe(
        self,
        noise: NDArray[np.float64],
        multiplier: float,
        sums: Sequence[NDArray[np.float64]] = (),
        spacing: NDArray[np.float64] | float = 0.0,
    ) -> None:
        """Add one step.

        A step with a multiplier of 0, or with noise that is not finite, is skipped and
        counted.

        Args:
            noise: The noise added at each watched coordinate, over the clipping norm.
            multiplier: Its stated standard deviation.
            sums: The sums before and after noise that it was read from, as the program
                kept them, over the clipping norm. They bound the rounding error of the
                noise.
            spacing: How far apart the numbers of each coordinate's floating-point type
                are at zero, over the clipping norm.
        """
        if noise.shape != self._groups.shape:
            raise InvalidInputError(
                f"noise must have {len(self._groups)} values, one for each watched "
                f"coordinate, got shape {noise.shape}"
            )
        _validate.nonnegative("multiplier", multiplier)
        error = self._errors.add(self._rounding.bound(noise, sums, spacing))
        own = np.multiply(noise, self._whitening.diagonal, dtype=np.float64)
        noise = self._whitening.add(noise)
        size = np.abs(noise)
        if not (size / (multiplier or 1.0)).max(initial=0.0) < _HUGE:
            self._steps.extend((nan, nan, nan, nan, multiplier))
            return
        past = noise - own
        squares = [float(part @ part) for part in (noise, own, past, error)]
        self._steps.extend((*squares, multiplier))
        self._keep(noise)
        if multiplier:
            scale = np.float64(multiplier)
            add_row(self._totals, noise / scale, size / scale, error / scale)

    def _keep(self, noise: NDArray[np.float64]) -> None:
        """Keep a step if it is among the random sample (Vitter's Algorithm R)."""
        step = place = len(self._steps) // _OF_A_STEP - 1
        if step >= self._most:
            drawn = self._key.stream("noise steps", step, 16)
            place = int.from_bytes(drawn, "little") % (step + 1)
        if place >= self._most:
            return
        if place >= len(self._rows):
            # Grow in small steps: the memory is meant to be 1 KiB per step.
            more = min(place + place // 64 + 8, self._most) - len(self._rows)
            self._rows = np.pad(self._rows, ((0, more), (0, 0)))
            self._numbers = np.pad(self._numbers, (0, more), constant_values=-1)
        self._rows[place], self._numbers[place] = noise, step

    def found(self, accounted: NDArray[np.float64] | None = None) -> Found:
        """Return the checks of the noise, its faults, and remarks.

        Only for after the game: it reveals something about the coins.

        Args:
            accounted: The accountant's noise multiplier of each step, if it is known:
                the noise is compared with it, or else with the stated multiplier.
        """
        seen, passed = self._seen(accounted)
        if not seen.used or not len(seen.groups):
            stages = Stage.NOISE_SCALE, Stage.NOISE_INDEPENDENCE
            return (
                tuple(not_checked(each, "noise.not_read", **passed) for each in stages),
                (),
                (),
            )
        pairs = noise_faults.compared(seen.rows, seen.slack)
        checks = _scale_check(seen, passed), _independence_check(seen, *pairs)
        faults, remarks = noise_faults.found(seen, *pairs)
        return _coarse(seen, checks, self._rounding.half), faults, remarks

    def _seen(
        self, accounted: NDArray[np.float64] | None = None
    ) -> tuple[NoiseSeen, dict[str, int]]:
        """Return the observed noise, and how many steps were skipped."""
        table = np.frombuffer(self._steps).reshape(-1, _OF_A_STEP)
        *squares, stated = table.T
        known = accounted is not None and len(accounted) == len(stated)
        level = np.asarray(accounted if known else stated, np.float64)
        numbers = np.isfinite(squares[0])
        used = numbers & (level > 0)
        kept = np.flatnonzero(self._numbers >= 0)
        kept = kept[np.argsort(self._numbers[kept])]
        kept = kept[used[self._numbers[kept]]]
        few = _spread(len(self._groups), _MOST_COMPARED)
        rows = self._rows[kept] / level[self._numbers[kept], None]
        scaled = [part[used] / np.square(level[used]) for part in squares]
        errors = np.sqrt(squares[3][self._numbers[kept]]) / level[self._numbers[kept]]
        if np.allclose(level[used], stated[used], rtol=1e-9, atol=0.0):
            totals = np.stack([np.full(len(self._groups), used.sum()), *self._totals])
        else:  # At another level, only the kept steps can be summed.
            totals = np.stack(
                [np.full(len(self._groups), len(kept)), *sums_of(rows, errors)]
            )
        constant = used.any() and level[used].min() == level[used].max()
        passed = {
            "without": int((numbers & (level == 0)).sum()),
            "not_finite": int((~numbers).sum()),
        }
        return NoiseSeen(
            names=self._names,
            groups=self._groups,
            totals=totals,
            rows=rows[:, few].astype(np.float32),
            numbers=self._numbers[kept],
            columns=self._groups[few],
            slack=noise_faults.slack_of(rows[:, few], errors, totals[3][few]),
            multiplier=float(level[used][0]) if constant else nan,
            used=int(used.sum()),
            steps=Steps(
                numbers=np.flatnonzero(used),
                squares=scaled[0],
                own=scaled[1],
                past=scaled[2],
                rounding=scaled[3],
                correlated=self._correlated,
            ),
        ), passed

    def saved(self) -> State:
        """Return the state, in a form that only the key can read."""
        # A new number for every save, so that no two use the same key stream.
        number = secrets.randbits(63)
        parts = (
            np.frombuffer(self._steps),
            self._totals,
            self._rows,
            self._numbers,
            self._rounding.unit,
            self._whitening.recent,
            self._errors.recent,
        )
        plain = b"".join(part.tobytes() for part in parts)
        steps = len(self._steps) // _OF_A_STEP
        return {
            f"{_SEALED}.steps": np.array([steps, len(self._rows), number]),
            _SEALED: self._key.sealed(_SEALED, number, np.frombuffer(plain, np.uint8)),
        }

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned."""
        steps, rows, number = saved_counts(saved, f"{_SEALED}.steps", 3)
        recent, unit = self._whitening.recent.shape, self._rounding.unit.shape
        table, kept = (steps * _OF_A_STEP,), (rows, len(self._groups))
        shapes = (table, self._totals.shape, kept, (rows,), unit, recent, recent)
        kinds = [np.dtype(kind) for kind in ("f8", "f8", "f4", "i8", "f8", "f8", "f8")]
        lengths = [int(np.prod(shape)) for shape in shapes]
        ends = np.cumsum(np.array(lengths) * [kind.itemsize for kind in kinds])
        sealed = saved.get(_SEALED, np.zeros(0))
        whole = sealed.dtype == np.uint8 and sealed.shape == (ends[-1],)
        if not whole or rows > self._most:
            raise InvalidInputError(
                "the state does not hold what the audit gathered of the noise"
            )
        opened = self._key.sealed(_SEALED, number, np.asarray(sealed, np.uint8))
        pieces = np.split(opened, ends[:-1])
        of_steps, totals, values, numbers, units, newest, errors = (
            piece.view(kind).reshape(shape).copy()
            for piece, kind, shape in zip(pieces, kinds, shapes, strict=True)
        )
        sane = ((numbers >= -1) & (numbers < steps)).all() and (totals[1:] >= 0).all()
        sane &= (totals[3:5] <= steps).all() and not (of_steps < 0).any()
        if not (sane and np.isfinite(totals).all() and np.isfinite(values).all()):
            raise InvalidInputError("the state was changed, or is of another key")
        self._steps, self._totals = array("d", of_steps.tobytes()), totals
        self._rows, self._numbers, self._rounding.unit = values, numbers, units
        self._whitening.recent, self._errors.recent = newest, errors
        self._whitening.step = self._errors.step = steps


@final
@dataclass(frozen=True, slots=True)
class _Absolute:
    """The absolute values of a strategy: they bound how errors add up."""

    of: Strategy

    @property
    def steps(self) -> int | None:
        return self.of.steps

    @property
    def bands(self) -> int:
        return self.of.bands

    def column(self, step: int) -> NDArray[np.float64]:
        return np.abs(self.of.column(step))


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` indices below ``count``, evenly spread."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def _scale_check(seen: NoiseSeen, passed: dict[str, int]) -> Finding:
    values = seen.used * len(seen.groups)
    ratio, rounded = (
        sqrt(float(part.sum()) / values)
        for part in (seen.steps.squares, seen.steps.rounding)
    )
    return inspected(
        Stage.NOISE_SCALE,
        "noise.measured",
        ratio=ratio,
        error=ratio / sqrt(2 * values) + rounded,
        parameters=len(np.unique(seen.groups)),
        steps=seen.used,
        detectable_step=detectable_step(seen),
        **passed,
    )


def _coarse(seen: NoiseSeen, checks: Findings, half: NDArray[np.bool_]) -> Findings:
    """Return checks as not made if rounding hides the noise, or that of a parameter.

    Args:
        seen: The observed noise.
        checks: Of it.
        half: Where sums have few significant bits. Elsewhere no single parameter is
            named, as the errors of a few first steps are overestimated.
    """
    whole = sqrt(float(seen.steps.rounding.mean()) / len(seen.groups))
    count, _, _, rounding, *_ = seen.totals
    values, errors = (
        np.bincount(seen.groups, half * each) for each in (count, rounding)
    )
    shares = np.sqrt(errors / np.maximum(values, 1))
    hidden = np.flatnonzero(shares >= _TOO_COARSE)
    if whole < _TOO_COARSE and not len(hidden):
        return checks
    every = len(hidden) == len(np.unique(seen.groups))
    named = () if every else tuple(seen.names[each] for each in hidden)
    share = max(whole, float(shares.max()))
    stages = (check.stage for check in checks)
    return tuple(
        not_checked(stage, "noise.rounding", named, share=share)
        for stage in stages
        if stage
    )


def _independence_check(
    seen: NoiseSeen, steps: AlikeRows, coordinates: AlikeRows
) -> Finding:
    if not (steps.places or coordinates.places):
        return not_checked(Stage.NOISE_INDEPENDENCE, "noise.too_few")
    return inspected(
        Stage.NOISE_INDEPENDENCE,
        "noise.correlations",
        step_cosine=abs(steps.cosine),
        step_places=steps.places,
        coordinate_cosine=abs(coordinates.cosine),
        coordinate_places=coordinates.places,
        beyond_chance=steps.found or coordinates.found,
        sampled=len(seen.numbers),
        steps=seen.used,
    )
