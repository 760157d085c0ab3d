"""Which canaries join a step, by their coins and a Poisson draw of each step.

Every canary can be drawn whatever its coin; an excluded one has the zero gradient. The
draws have a stream of the key of their own, so they are independent of the coins, the
guesser cannot know them, and a resumed run draws the same as an uninterrupted one. Only
the drawn canaries cost time: the gaps between them are geometric, which is equivalent
to an independent draw for each canary.
"""

from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.participation import Participation
from dpaudit.errors import InvalidRunError
from dpaudit.game.coins import Coins, Key

__all__ = ["ParticipationDraws", "drawn"]


@final
class ParticipationDraws:
    """The secret part of an audit: the coins, and which canaries join each step.

    Args:
        key: The secret of the run.
        canaries: Number of canaries.
        per_coordinate: Canaries at each coordinate; canary ``i`` is at ``i // s``.
        sample_rate: Probability that a canary joins a step, when it is its turn.
        participation: The participation schedule; all in every step if left out.

    Example:
        >>> draws = ParticipationDraws(
        ...     key=Key(bytes(32)), canaries=8, per_coordinate=2, sample_rate=1.0
        ... )
        >>> draws.included
        array([ True, False,  True, False, False, False,  True, False])
        >>> draws.contributions(step=0)
        array([1, 1, 0, 1])
    """

    def __init__(
        self,
        *,
        key: Key,
        canaries: int,
        per_coordinate: int,
        sample_rate: float,
        participation: Participation | None = None,
    ) -> None:
        _validate.rate("sample_rate", sample_rate)
        _validate.whole_number("per_coordinate", per_coordinate, least=1)
        self._key, self._canaries, self.sample_rate = key, canaries, sample_rate
        self._per_coordinate = per_coordinate
        bits = Coins(key=key, count=canaries).bits()
        self.included: NDArray[np.bool_] = bits.astype(bool)
        self._participation = participation
        self._used = np.zeros(canaries, np.int64), 0  # joins, and steps counted

    def __reduce__(self) -> NoReturn:
        raise InvalidRunError(
            "an audit holds its key and cannot be pickled; use its save(), which "
            "writes neither key nor coins"
        )

    def joined(self, step: int) -> NDArray[np.int64]:
        """Return the coordinate of each included canary that joins a step, in order."""
        who = self.present(step)
        return np.asarray(who[self.included[who]] // self._per_coordinate)

    def contributions(self, step: int) -> NDArray[np.int64]:
        """Return how many included canaries join a step at each coordinate."""
        coordinates = self._canaries // self._per_coordinate
        return np.bincount(self.joined(step), minlength=coordinates)

    def present(self, step: int) -> NDArray[np.int64]:
        """Return the canaries that participate in a step, whatever their coins.

        Excluded ones contribute nothing.
        """
        participation = self._participation
        if participation is None:
            return self._picked(step)
        who = self._in_turn(step)
        if participation.most is None:
            return who
        return np.asarray(who[self._joins_before(step)[who] < participation.most])

    def _picked(self, step: int) -> NDArray[np.int64]:
        rate = self.sample_rate
        return drawn(self._key, step, canaries=self._canaries, sample_rate=rate)

    def _in_turn(self, step: int) -> NDArray[np.int64]:
        assert self._participation is not None
        cohort = self._participation.cohort_at(step)
        if cohort is None:
            return np.zeros(0, np.int64)
        who = self._picked(step)
        cohorts = who // self._per_coordinate % self._participation.cohorts
        return np.asarray(who[cohorts == cohort])

    def _joins_before(self, step: int) -> NDArray[np.int64]:
        """Return how often each canary was drawn in its turn before a step."""
        counts, steps = self._used
        if steps > step:
            counts, steps = np.zeros_like(counts), 0
        for earlier in range(steps, step):
            counts[self._in_turn(earlier)] += 1
        self._used = counts, step
        return counts


def drawn(
    key: Key, step: int, *, canaries: int, sample_rate: float
) -> NDArray[np.int64]:
    """Return the canaries drawn for a step, in order, whatever their coins.

    Example:
        >>> drawn(Key(bytes(32)), 0, canaries=5, sample_rate=1.0)
        array([0, 1, 2, 3, 4])
    """
    rng = key.generator("participation", step)
    mean = canaries * sample_rate
    size = int(mean + 6 * np.sqrt(mean)) + 8  # almost always enough
    parts, last = [], -1
    while last < canaries:
        gaps = np.minimum(rng.geometric(sample_rate, size), canaries + 1)
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    places = np.concatenate(parts)
    return places[: np.searchsorted(places, canaries)]
