"""Guessers on the same noisy sums: the exact posterior, and the sum of the updates.

DP-SGD with Dirac canaries in the setting of Keinan, Shenfeld and Ligett: 1000
coordinates, 100 steps, sampling rate 1/10, the noise of epsilon = 2 at delta = 1e-5.
The score that papers and tools use is the dot product of a canary with the updates,
summed over the steps; the highest half of the guesses are "included", the lowest half
"excluded". Ours computes the posterior of every coin from the noisy sums of all steps
and takes the surest. Both count 100 guesses by the exact bound, so that the guesser is
all that differs. Time is from the sums of the steps to the bound.

Both bounds are below epsilon = 2 unless an audit is wrong. Beside that, sums are drawn
with other coins than those that are guessed: of these nothing can be known.

Reference: https://arxiv.org/abs/2503.07199, section "Experiments".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import canary_log_odds, likelihood_for_sampling, simulate_sums
from dpaudit.game.guessers import Extremes, Submission, most_likely
from dpaudit_lab.benchmark.memory import growth
from dpaudit_lab.benchmark.row import Bound, Part, Row, cost_of
from dpaudit_lab.paper.training import EPSILON, NOISE
from dpaudit_lab.power.nulls import Wrong
from dpaudit_lab.power.task import draw_number, numbered
from dpaudit_lab.power.timing import cpu
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep, TrialFunction

__all__ = ["GUESSERS", "Game", "Guessers", "Run", "by_likelihood", "by_sums", "run_of"]

DELTA, ALPHA = 1e-5, 0.05
_RATE = 0.1
_SIGMA = NOISE[EPSILON]
_NULLS_PER_RUN = 3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """What is audited, and how many guesses are made.

    Attributes:
        coordinates: Coordinates with canaries.
        per_coordinate: Canaries at each.
        steps: Of the training.
        guesses: How many, half of each kind if sums decide.
    """

    coordinates: int
    per_coordinate: int
    steps: int = 100
    guesses: int = 100

    def __post_init__(self) -> None:
        _validate.whole_number("coordinates", self.coordinates, least=1)
        _validate.whole_number("per_coordinate", self.per_coordinate, least=1)
        _validate.whole_number("steps", self.steps, least=1)
        _validate.whole_number("guesses", self.guesses, least=2)

    @property
    def canaries(self) -> int:
        """All of them."""
        return self.coordinates * self.per_coordinate


GAMES: Final = (
    Game(coordinates=1000, per_coordinate=1),
    Game(coordinates=1000, per_coordinate=8),
)
SMALL_GAMES: Final = (Game(coordinates=40, per_coordinate=2, steps=10, guesses=10),)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What was seen of one training, and its coins.

    Attributes:
        game: What was audited.
        sums: The noisy sums of each step.
        bits: The coins that are to be guessed.
    """

    game: Game
    sums: tuple[NDArray[np.float64], ...]
    bits: NDArray[np.uint8]


def run_of(game: Game, number: int, *, silent: bool = False) -> Run:
    """Return a run by its number: the same for whoever asks.

    Args:
        game: What is audited.
        number: Which run.
        silent: Whether the sums have nothing to do with the coins.

    Example:
        >>> run = run_of(SMALL_GAMES[0], 3)
        >>> len(run.sums), len(run.bits)
        (10, 80)
    """
    rng = numbered("dpaudit guessers", *asdict(game).values(), silent, number)
    bits, others = rng.integers(0, 2, (2, game.canaries), np.uint8)
    sums = simulate_sums(
        (others if silent else bits).reshape(game.coordinates, game.per_coordinate),
        sampling=Poisson(rate=_RATE),
        sigma=_SIGMA,
        steps=game.steps,
        seed=np.random.SeedSequence(int(rng.integers(2**63))),
    )
    return Run(game=game, sums=tuple(np.array(step) for step in sums), bits=bits)


def by_likelihood(run: Run) -> Submission:
    """Guess what the exact posterior is surest of."""
    game = run.game
    likelihood = likelihood_for_sampling(
        coordinates=game.coordinates,
        per_coordinate=game.per_coordinate,
        sampling=Poisson(rate=_RATE),
    )
    for step in run.sums:
        likelihood.observe(step, _SIGMA)
    log_odds = canary_log_odds(likelihood.log_likelihood)
    index, guess = most_likely(log_odds, guesses=game.guesses)
    return Submission(index=index, guess=guess)


def by_sums(run: Run) -> Submission:
    """Guess by the dot products of canaries with the updates, summed over the steps."""
    half = run.game.guesses // 2
    total = np.zeros(run.game.coordinates)
    for step in run.sums:
        total += step
    scores = np.repeat(total, run.game.per_coordinate)
    guesser: Extremes[NDArray[np.float64]] = Extremes(
        score=np.asarray, top=half, bottom=half
    )
    return guesser.guess(scores)


_Guesser: TypeAlias = Callable[[Run], Submission]
GUESSERS: Mapping[str, _Guesser] = MappingProxyType(
    {"likelihood": by_likelihood, "sums": by_sums}
)
_NAMES: Final = {
    "likelihood": "exact posterior",
    "sums": "dot product with the updates, as in papers",
}


def bound_of(guesser: _Guesser, run: Run) -> float:
    """Return the exact bound on a run by a guesser."""
    made = guesser(run)
    right = int(np.sum((made.guess == 1) == (run.bits[made.index] == 1)))
    counts = Counts(canaries=run.game.canaries, guesses=len(made.index), correct=right)
    return ExactBound().epsilon_lower(counts, delta=DELTA, alpha=ALPHA).epsilon_lower


def bound_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Bound one run by every guesser."""
    run = run_of(_game(setting), draw_number(rng))
    return {key: bound_of(guesser, run) for key, guesser in GUESSERS.items()}


def silent_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Bound a run of which nothing can be known by every guesser."""
    run = run_of(_game(setting), draw_number(rng), silent=True)
    return {key: bound_of(guesser, run) for key, guesser in GUESSERS.items()}


def time_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Time every guesser on one run, one after the other, in CPU seconds."""
    run = run_of(_game(setting), draw_number(rng))
    return {key: cpu(bound_of, guesser, run) for key, guesser in GUESSERS.items()}


def memory_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Measure the memory of every guesser on the first run."""
    del rng
    ready = partial(run_of, _game(setting), 0)
    return {
        key: growth(ready, partial(bound_of, guesser))
        for key, guesser in GUESSERS.items()
    }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Guessers:
    """The comparison of guessers.

    Attributes:
        trials: Runs of each game.
        pairs: Runs on which guessers are timed; 0 for no costs at all.
        games: What is audited.
    """

    trials: int = 200
    pairs: int = 20
    games: tuple[Game, ...] = GAMES

    def __post_init__(self) -> None:
        _validate.whole_number("trials", self.trials, least=1)
        _validate.whole_number("pairs", self.pairs)

    def sweeps(self) -> list[Sweep]:
        """Return the sweeps that fill its rows."""
        return [self._bounds(), self._silent(), self._times(), self._memory()]

    def rows(self, store: Store) -> list[Row]:
        """Return its rows; what the store does not hold is left out."""
        return [row for game in self.games for row in self._rows(store, game)]

    def left_out(self, store: Store) -> list[str]:
        """Return which rows are missing: none ever are."""
        del store
        return []

    def _rows(self, store: Store, game: Game) -> Iterable[Row]:
        bounds, silent, times, memory = (
            sweep.columns(store, asdict(game)) for sweep in self.sweeps()
        )
        for key in bounds:
            yield Row(
                part=Part.GUESSERS,
                size=f"{game.canaries:,} canaries on {game.coordinates:,} coordinates, "
                f"{game.steps} steps",
                method=_NAMES[key],
                ours=key == "likelihood",
                cost=cost_of(
                    times.get(key, []), times.get("sums", []), memory.get(key, [])
                ),
                bound=Bound.of(bounds[key]),
                wrong=(
                    Wrong.of(silent[key], epsilon=0.0, truth=0.0),
                    Wrong.of(bounds[key], epsilon=EPSILON, truth=EPSILON),
                ),
                guesses=game.guesses,
            )

    def _bounds(self) -> Sweep:
        return self._sweep("bounds", bound_trial, self.trials)

    def _silent(self) -> Sweep:
        return self._sweep("silent", silent_trial, _NULLS_PER_RUN * self.trials)

    def _times(self) -> Sweep:
        return self._sweep("times", time_trial, self.pairs)

    def _memory(self) -> Sweep:
        return self._sweep("memory", memory_trial, min(1, self.pairs))

    def _sweep(self, name: str, function: TrialFunction, trials: int) -> Sweep:
        return Sweep(
            name=f"guessers, {name}",
            revision=1,
            function=function,
            settings=[asdict(game) for game in self.games],
            trials=trials,
        )


def _game(setting: Setting) -> Game:
    return Game(**{key: int(value or 0) for key, value in setting.items()})
