"""Is the noise what it should be? What was added, looked at where it was added.

Sums are of all steps. Pairs are looked at in a random sample of them, chosen by the key
and the number of the step, once there are more than are kept. What was added as noise,
taken off a noisy sum, tells the coins: all of it is sealed with the key when saved, and
``found`` is for after the game. What is tested, and what is promised of it, is in
``noise_faults``.
"""

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from math import nan, sqrt
from typing import Any, Final, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.likelihood import saved_counts
from dpaudit.dpsgd.strategy import Independent, Strategy, Whitening
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.coins import Key
from dpaudit.game.ledger import Fault, How, Look, Road
from dpaudit.training import noise_faults
from dpaudit.training.noise_faults import Pairs, Seen, add_row, sums_of, with_error

__all__ = ["MOST_WATCHED", "NoiseWatch"]

MOST_WATCHED: Final = 240  # coordinates: less than 1 KiB a step
_SEALED: Final = "noise"
_MOST_COMPARED: Final = 1024  # coordinates, in pairs
_HUGE: Final = float(np.finfo(np.float32).max)


@final
class NoiseWatch:
    """Gathers what was added as noise, step by step; tells whether it is noise.

    Args:
        groups: For each coordinate that is watched the number of its parameter.
        names: Of all parameters.
        key: Of the run; what is saved is sealed with it.
        strategy: How noise is correlated from step to step, if it is: it is undone
            first, so that what is looked at is to be independent again.
        most_steps: So many steps are kept for comparing them two by two.

    Example:
        >>> watch = NoiseWatch(np.zeros(64, int), ["fc.weight"], Key(bytes(32)))
        >>> rng = np.random.default_rng(0)
        >>> for _ in range(50):
        ...     watch.observe(0.5 * rng.normal(size=64), 1.0)
        >>> looks, faults = watch.found()
        >>> print(looks[0].said)
        measured 0.501 ± 0.006 times the noise stated, in 1 parameter, over 50 steps
        >>> print(faults[0].said)
        noise 0.501 of that stated in every parameter
    """

    def __init__(
        self,
        groups: NDArray[np.int64],
        names: Sequence[str],
        key: Key,
        strategy: Strategy | None = None,
        *,
        most_steps: int = 4096,
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
        self._counts = np.zeros(3, np.int64)  # seen, without noise, no numbers
        self._stated = np.array([np.inf, 0.0])  # the least and the most
        self._totals = sums_of(np.zeros((0, len(self._groups))))
        self._rows = np.zeros((0, len(self._groups)), np.float32)
        self._numbers = np.zeros(0, np.int64)  # -1 where there is no row
        self._whitening = Whitening(strategy or Independent(), len(self._groups))

    def __reduce__(self) -> NoReturn:
        raise VoidAuditError("what tells the coins cannot be pickled")

    def observe(self, noise: NDArray[Any], multiplier: float) -> None:
        """Add one step.

        A step for which no noise was stated, or with noise that is no number, is
        passed over and counted.

        Args:
            noise: What was added at each watched coordinate, over the clipping norm.
            multiplier: The standard deviation that was stated for it.
        """
        if noise.shape != self._groups.shape:
            raise InvalidInputError(
                f"noise must have {len(self._groups)} values, one for each watched "
                f"coordinate, got shape {noise.shape}"
            )
        _validate.nonnegative("multiplier", multiplier)
        noise = self._whitening.add(noise)
        self._counts[0] += 1
        if multiplier == 0:
            self._counts[1] += 1
            return
        scaled = noise / np.float64(multiplier)
        size = np.abs(scaled)
        if not size.max(initial=0.0) < _HUGE:
            self._counts[2] += 1
            return
        least, most = self._stated
        self._stated[:] = min(least, multiplier), max(most, multiplier)
        add_row(self._totals, scaled, size)
        self._keep(scaled)

    def _keep(self, scaled: NDArray[np.float64]) -> None:
        """Keep a step if it is among the random sample (Vitter's Algorithm R)."""
        step = place = int(self._counts[0]) - 1
        if step >= self._most:
            drawn = self._key.stream("noise steps", step, 16)
            place = int.from_bytes(drawn, "little") % (step + 1)
        if place >= self._most:
            return
        if place >= len(self._rows):
            # Little room ahead: what is kept is to be 1 KiB a step.
            more = min(place + place // 64 + 8, self._most) - len(self._rows)
            self._rows = np.pad(self._rows, ((0, more), (0, 0)))
            self._numbers = np.pad(self._numbers, (0, more), constant_values=-1)
        self._rows[place], self._numbers[place] = scaled, step

    def found(self) -> tuple[tuple[Look, ...], tuple[Fault, ...]]:
        """Return what was seen of the noise, and what is wrong with it.

        Only for after the game: it says something about the coins.
        """
        seen, passed = self._seen()
        if not seen.used or not len(seen.groups):
            said = f"a step with noise that can be read would{passed}"
            nothing = partial(Look, how=How.NOT_LOOKED_AT, said=said)
            return (nothing(road=Road.NOISE), nothing(road=Road.INDEPENDENCE)), ()
        pairs = noise_faults.compared(seen.rows)
        looks = _look_at_scale(seen, passed), _look_at_pairs(seen, *pairs)
        return looks, noise_faults.found(seen, *pairs)

    def _seen(self) -> tuple[Seen, str]:
        """Return what was seen, and in words what was passed over."""
        steps, without, broken = self._counts.tolist()
        kept = np.flatnonzero(self._numbers >= 0)
        kept = kept[np.argsort(self._numbers[kept])]
        few = _spread(len(self._groups), _MOST_COMPARED)
        used, (least, most) = steps - without - broken, self._stated.tolist()
        passed = []
        if without:
            passed += [f"{_counted(without, 'step')} for which no noise was stated"]
        if broken:
            passed += [f"{_counted(broken, 'step')} with noise that is no number"]
        return Seen(
            names=self._names,
            groups=self._groups,
            totals=np.stack([np.full(len(self._groups), used), *self._totals]),
            rows=self._rows[kept][:, few],
            numbers=self._numbers[kept],
            columns=self._groups[few],
            multiplier=least if least == most else nan,
            used=used,
        ), f"; passed over: {', '.join(passed)}" if passed else ""

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return what was gathered, in a form that only the key can read."""
        # A number of its own for every save: no two are sealed alike.
        number = secrets.randbits(63)
        parts = (
            self._stated,
            self._totals,
            self._rows,
            self._numbers,
            self._whitening.recent,
        )
        plain = b"".join(part.tobytes() for part in parts)
        return {
            f"{_SEALED}.steps": np.array([*self._counts, len(self._rows), number]),
            _SEALED: self._key.sealed(_SEALED, number, np.frombuffer(plain, np.uint8)),
        }

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what ``saved`` returned."""
        *counts, rows, number = saved_counts(saved, f"{_SEALED}.steps", 5)
        recent = self._whitening.recent.shape
        shapes = ((2,), self._totals.shape, (rows, len(self._groups)), (rows,), recent)
        kinds = [np.dtype(kind) for kind in ("f8", "f8", "f4", "i8", "f8")]
        lengths = [int(np.prod(shape)) for shape in shapes]
        ends = np.cumsum(np.array(lengths) * [kind.itemsize for kind in kinds])
        sealed = saved.get(_SEALED, np.zeros(0))
        whole = sealed.dtype == np.uint8 and sealed.shape == (ends[-1],)
        if not whole or rows > self._most:
            raise InvalidInputError(
                "the state does not hold what the audit gathered of the noise"
            )
        pieces = np.split(self._key.sealed(_SEALED, number, sealed), ends[:-1])
        stated, totals, kept, numbers, newest = (
            piece.view(kind).reshape(shape).copy()
            for piece, kind, shape in zip(pieces, kinds, shapes, strict=True)
        )
        sane = ((numbers >= -1) & (numbers < counts[0])).all()
        sane &= (totals[1:] >= 0).all() and (totals[2] <= counts[0]).all()
        if not (sane and np.isfinite(totals).all() and np.isfinite(kept).all()):
            raise InvalidInputError("the state was changed, or is of another key")
        self._counts, self._stated, self._totals = np.array(counts), stated, totals
        self._rows, self._numbers = kept, numbers
        self._whitening.recent, self._whitening.step = newest, counts[0]


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """Return so many places of ``count`` at most, evenly spread."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _look_at_scale(seen: Seen, passed: str) -> Look:
    values, _, squares, *_ = seen.totals.sum(1)
    times = sqrt(squares / values)
    return Look(
        road=Road.NOISE,
        how=How.PROBED,
        said=f"measured {with_error(times, times / sqrt(2 * values))} times the noise "
        f"stated, in {_counted(len(np.unique(seen.groups)), 'parameter')}, over "
        f"{_counted(seen.used, 'step')}{passed}",
    )


def _look_at_pairs(seen: Seen, steps: Pairs, coordinates: Pairs) -> Look:
    said = "the largest correlation"
    if steps.places:
        said += (
            f" of two steps is {abs(steps.cosine):.2g} of {steps.places} coordinates,"
        )
    if coordinates.places:
        said += f" of two coordinates {'' if steps.places else 'is '}"
        said += f"{abs(coordinates.cosine):.2g} over {coordinates.places} steps,"
    if not (steps.places or coordinates.places):
        said = "three steps or more with noise would, and three coordinates or more"
        return Look(road=Road.INDEPENDENCE, how=How.NOT_LOOKED_AT, said=said)
    beyond = steps.found or coordinates.found
    said += f" {'more than' if beyond else 'as'} chance explains"
    if len(seen.numbers) < seen.used:
        said += f"; in a random sample of {len(seen.numbers)} of {seen.used} steps"
    return Look(road=Road.INDEPENDENCE, how=How.PROBED, said=said)
