"""The paper's DP-SGD, and its guesser and ours about one run of it.

1000 coordinates, 100 steps, sampling rate 1/10, each element a gradient that is nonzero
in one coordinate. With up to 1000 elements none share a coordinate; with more, an equal
number do. The noise is what the RDP accountant asks for at delta = 1e-5.

The paper's guesser sorts by the sum of the updates at the element's coordinate, guesses
1 for the highest half of its guesses and -1 for the lowest. Ours takes the same number
of guesses, those whose posterior is surest.

Reference: Keinan, Shenfeld and Ligett, section "Experiments",
https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums, SeenSums
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.guessers import Extremes, Guesser, MostLikely
from dpaudit.game.referee import Referee
from dpaudit.testing import fixed_key
from dpaudit.theory.gap_levels import Estimate
from dpaudit_lab.paper.one_game import one_run_design

__all__ = [
    "CEILING",
    "COORDINATES",
    "EPSILON",
    "MOST",
    "NOISE",
    "TRUTH",
    "OneTraining",
    "dp_sgd",
    "one_training",
]

COORDINATES: Final = 1000
EPSILON: Final = 2.0
_STEPS, _RATE = 100, 0.1
# By epsilon: noise_for(epsilon, 1e-5, sample_rate=0.1, steps=100, method="rdp").
NOISE: Mapping[float, float] = MappingProxyType(
    {1.0: 4.2776161, 2.0: 2.4224014, 4.0: 1.4815286, 8.0: 0.9937261}
)
# What that noise amounts to, by accountant_curve([(noise, 0.1, 100)]): at delta = 1e-5,
# and the most that an audit reliably shows at alpha = 0.05, by mechanism_ceiling.
TRUTH: Mapping[float, float] = MappingProxyType(
    {1.0: 0.90855, 2.0: 1.81482, 4.0: 3.60377, 8.0: 7.13087}
)
CEILING: Mapping[float, float] = MappingProxyType(
    {1.0: 0.70089, 2.0: 1.42592, 4.0: 2.86078, 8.0: 5.69078}
)


def _known(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high)


# By coordinates and canaries at each, for epsilon = 2: the median that no valid audit's
# bound exceeds at alpha = 0.05, whatever its delta, by `python lab/measure/limit.py
# table`, which simulates 160,000 coordinates in each batch. Pages and figures quote
# these. With more than 12 canaries as many are too few to tell.
MOST: Mapping[tuple[int, int], Estimate] = MappingProxyType(
    {
        (100, 1): _known(0.122, 0.121, 0.124),
        (200, 1): _known(0.277, 0.276, 0.279),
        (500, 1): _known(0.457, 0.455, 0.460),
        (1000, 1): _known(0.580, 0.577, 0.583),
        (1000, 2): _known(0.679, 0.674, 0.684),
        (1000, 3): _known(0.727, 0.726, 0.729),
        (1000, 4): _known(0.757, 0.755, 0.759),
        (1000, 5): _known(0.776, 0.773, 0.779),
        (1000, 6): _known(0.792, 0.789, 0.796),
        (1000, 8): _known(0.808, 0.806, 0.809),
        (1000, 10): _known(0.814, 0.811, 0.817),
        (1000, 12): _known(0.818, 0.814, 0.823),
    }
)


def dp_sgd(elements: int, epsilon: float) -> DiracSums:
    """Return the paper's DP-SGD with so many elements.

    Example:
        >>> few, many = dp_sgd(500, 2.0), dp_sgd(5000, 2.0)
        >>> few.coordinates, few.per_coordinate
        (500, 1)
        >>> many.coordinates, many.per_coordinate, many.steps
        (1000, 5, 100)
    """
    if elements > COORDINATES and elements % COORDINATES:
        raise InvalidInputError(
            f"more than {COORDINATES} elements must be a multiple of it, got "
            f"elements={elements!r}"
        )
    if epsilon not in NOISE:
        raise InvalidInputError(
            f"epsilon must be one of {list(NOISE)}, got epsilon={epsilon!r}; for "
            "others add their noise"
        )
    return DiracSums(
        coordinates=min(elements, COORDINATES),
        per_coordinate=max(1, elements // COORDINATES),
        sampling=Poisson(rate=_RATE),
        sigma=NOISE[epsilon],
        steps=_STEPS,
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneTraining:
    """One run of DP-SGD, to be guessed about in several ways.

    Attributes:
        mechanism: What was run.
        key: The secret of the coins.
        seen: What was seen of it.
    """

    mechanism: DiracSums
    key: Key
    seen: SeenSums

    def right_by_sums(self, guesses: int) -> int:
        """Return how many of the paper's guesses are right, half up and half down."""
        half = guesses // 2
        guesser = Extremes(score=self._totals, top=half, bottom=half)
        return self._right(guesser, guesses)

    def right_by_likelihood(self, guesses: int) -> int:
        """Return how many of as many surest guesses are right."""
        guesser = MostLikely(mechanism=self.mechanism, guesses=guesses)
        return self._right(guesser, guesses)

    def _totals(self, seen: SeenSums) -> NDArray[np.float64]:
        """Return the sum over all steps at each canary's coordinate."""
        return np.repeat(seen.total, self.mechanism.per_coordinate)

    def _right(self, guesser: Guesser[SeenSums], guesses: int) -> int:
        """Return what the referee counts, who has the coins."""
        one = self.mechanism
        elements = one.coordinates * one.per_coordinate
        design = one_run_design(one.pairs, canaries=elements, guesses=guesses)
        referee, made = Referee(design, self.key), guesser.guess(self.seen)
        referee.submit(made.index, made.guess)
        right, _ = referee.close().reading().correct_and_guesses()
        return right


def one_training(
    elements: int, epsilon: float, rng: np.random.Generator
) -> OneTraining:
    """Return one simulated run."""
    mechanism = dp_sgd(elements, epsilon)
    key = fixed_key(rng.bytes(32))
    bits = Coins(key=key, count=elements).bits()
    seen = mechanism.run(mechanism.pairs.choose(bits), rng)
    return OneTraining(mechanism=mechanism, key=key, seen=seen)
