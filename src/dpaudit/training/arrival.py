"""Sanity check: regress the noisy sums on the canaries that joined.

The side that inserts canaries knows how many joined each step at each coordinate. If
the canaries arrived, the sum is higher by one clipping norm where one more joins, so
the slope of the noisy sums on the joins is 1. A slope of 0 means that nothing arrived,
and then "not refuted" means nothing; -1 means that the sign is wrong, 100 or 0.01 the
scale, 0.5 that half was lost.

Joins are centred over the coordinates of a step, so that what all coordinates share,
such as a common part of real gradients, does not count. If noise is correlated from
step to step, sums and joins are both multiplied by the strategy first: the noise is
then independent, and the slope as precise as possible. The standard error is computed
from the residuals at each coordinate summed over all steps: noise that a faulty program
repeats from step to step, or real gradients that stay, widen it.

All of this is kept on the side that knows the coins, is read only after the game is
closed, and never reaches the guesser. It does not affect the probability of refuting a
true claim, which is over all runs, invalid ones included: an invalid run is spent, and
repeating runs until one is valid has another error probability than alpha.
"""

import secrets
from collections.abc import Callable
from math import isfinite, sqrt
from typing import Final, NoReturn, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.dpsgd.likelihood import State, saved_counts
from dpaudit.dpsgd.strategy import Independent, Strategy, Whitening
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.verdict import SignalRecovery

__all__ = ["Arrivals"]

Floats: TypeAlias = NDArray[np.float64]

_SEALED: Final = "arrival"


@final
class Arrivals:
    """Accumulates the regression of noisy sums on joins; knows the coins.

    Args:
        coordinates: Number of coordinates that are read here.
        key: Of the run; what is saved is sealed with it, as it reveals the coins.
        by_program: Whether the program itself adds the canaries to the sums.
        strategy: How noise is correlated from step to step, if it is.

    Example:
        >>> arrivals = Arrivals(4, Key(bytes(32)))
        >>> for joined in ([1, 0, 0, 1], [0, 1, 0, 1]):
        ...     arrivals.observe(np.array(joined) + 0.5, np.array(joined))
        >>> arrivals.found().slope
        1.0
    """

    def __init__(
        self,
        coordinates: int,
        key: Key,
        *,
        by_program: bool = False,
        strategy: Strategy | None = None,
    ) -> None:
        self._key, self._steps, self._by_program = key, 0, by_program
        self._sums = np.zeros((2, coordinates))  # of products, and of squares
        self._correlated = strategy is not None
        self._of_sums, self._of_joins = (
            Whitening(strategy or Independent(), coordinates) for _ in range(2)
        )

    def __reduce__(self) -> NoReturn:
        raise InvalidRunError("what tells the coins cannot be pickled")

    def observe(self, sums: NDArray[np.number], joined: NDArray[np.number]) -> None:
        """Add one step.

        Args:
            sums: The noisy sum at each coordinate, over the clipping norm, less the
                real records' part as far as it is known.
            joined: The canaries' part, also over the clipping norm.
        """
        self._steps += 1
        finite = np.isfinite(sums)
        sums = np.where(finite, sums, 0.0)
        if self._correlated:
            # A sum that is not finite counts as a sum of 0 that nothing joined.
            sums = self._of_sums.add(sums)
            joined = self._of_joins.add(np.where(finite, joined, 0.0))
        more = np.where(finite, joined - joined.mean(), 0.0)
        self._sums[0] += more * sums
        self._sums[1] += more * joined

    def found(
        self, gathered: Callable[[Floats], Floats] = lambda own: own
    ) -> SignalRecovery | None:
        """Return the slope with its error; None if nothing joined.

        Only for after the game: it reveals something about the coins.

        Args:
            gathered: Maps the numbers of this rank's coordinates to those of all ranks.
        """
        products, squares = gathered(self._sums.T).T
        whole = float(squares.sum())
        if not whole > 0:
            return None
        slope = float(products.sum()) / whole
        error = sqrt(float(np.square(products - slope * squares).sum())) / whole
        if not (isfinite(slope) and isfinite(error)):
            return None
        return SignalRecovery(
            slope=slope,
            error=error,
            steps=self._steps,
            by_program=self._by_program,
        )

    def saved(self) -> State:
        """Return the state, in a form that only the key can read."""
        # A new number for every save, so that no two use the same key stream.
        number = secrets.randbits(63)
        plain = self._kept().tobytes()
        return {
            f"{_SEALED}.steps": np.array([self._steps, number]),
            _SEALED: self._key.sealed(_SEALED, number, np.frombuffer(plain, np.uint8)),
        }

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned."""
        steps, number = saved_counts(saved, f"{_SEALED}.steps", 2)
        sealed = saved.get(_SEALED)
        if (
            sealed is None
            or sealed.dtype != np.uint8
            or sealed.shape != (self._kept().nbytes,)
        ):
            raise InvalidInputError(
                "the state does not hold what the audit gathered of its canaries"
            )
        plain = self._key.sealed(_SEALED, number, np.asarray(sealed, np.uint8))
        opened = np.frombuffer(plain.tobytes())
        if not np.isfinite(opened).all():
            raise InvalidInputError("the state was changed, or is of another key")
        rows = opened.reshape(-1, self._sums.shape[1]).copy()
        bands = len(self._of_sums.recent)
        self._sums, self._steps = rows[:2], steps
        self._of_sums.recent, self._of_joins.recent = (
            rows[2 : 2 + bands],
            rows[2 + bands :],
        )
        self._of_sums.step = self._of_joins.step = steps

    def _kept(self) -> Floats:
        """Return the whole state, in rows of coordinates."""
        recent = (self._of_sums.recent, self._of_joins.recent)
        return np.concatenate([self._sums, *recent])
