"""The value of knowing other coins: all of them, those revealed before, or none.

A one-run audit sees a typical output, and guesses ``k`` elements. Its accuracy depends
on what the guesser knows about the other coins:

- *all*: the adversary of differential privacy, on average over outputs instead of at
  the worst one. This is the paper's full-knowledge auditing, which is not a valid
  audit, as the guesses then depend on each other;
- *those revealed before*: adaptive auditing;
- *none*: the best efficacy in one run (``theory/levels``).

The mean accuracies decrease in this order if the adaptive guesser is the best one: more
knowledge is, on average, worth no less, as ``p(|l|)`` is convex in the posterior. So
the drop from the first to the last is interference, and the adaptive level shows how
much of it revealed coins recover. Where an output that reveals a coin is possible but
rare, as for counts without noise, the worst-case levels do not show interference at
all; these do.

Small mechanisms are enumerated: full knowledge is then exact, and the adaptive guesser
is the best of those that go through the elements in order. Others are simulated. There
the adaptive guesser guesses what reaches a threshold, and all that is left once it
must; or it guesses as in one run, if that is better. One half of the games gives
threshold and choice, the other half the mean. No guess is scored against its coin.

Reference: Keinan, Shenfeld and Ligett, appendix "Adaptive ORA",
https://arxiv.org/abs/2503.07199.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.mechanism import KnowsOthers, Posterior
from dpaudit.theory.capabilities import Playable, can_be_enumerated, can_be_played
from dpaudit.theory.enumeration import enumerate_mechanism
from dpaudit.theory.gap_levels import Estimate
from dpaudit.theory.posterior import play

__all__ = ["Knowledge", "knowledge"]

_SPAN = (0.5, 1.0)  # of the accuracy of the likelier guess
_MOST_TURNS = 15_000  # in all games
_MOST_TURNS_PER_GAME = 2000
_LEAST_RUNS = 100
_PER_TURN = 200  # so many elements take as long as the overhead of a turn
_SHARES = (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)  # reach a threshold, / guesses


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Mean accuracies of the best guesses, by knowledge of the other coins.

    Attributes:
        full: With all other coins known.
        in_turn: With those of earlier turns known.
        how: How the numbers were computed.
    """

    full: Estimate
    in_turn: Estimate
    how: str


def knowledge(
    mechanism: object,
    *,
    elements: int,
    guesses: int,
    rng: np.random.Generator | None = None,
    runs: int = 400,
) -> Knowledge | None:
    """Return the mean accuracies of guesses with full and with adaptive knowledge.

    Args:
        mechanism: Has ``distribution`` and ``pairs``, for at most 12 elements; or
            ``run``, ``posterior`` and ``pairs``.
        elements: Number of elements.
        guesses: How many of them are guessed.
        rng: For simulation only.
        runs: For simulation only; fewer are made if a game takes long.

    Returns:
        The accuracies; None if the mechanism has no posterior given revealed coins, if
        an rng is needed and missing, or if a game takes too long (2,000 turns).

    Example:
        >>> from dpaudit.mechanisms.sets import CountInSets
        >>> sets = CountInSets(elements=8, set_size=4)
        >>> found = knowledge(sets, elements=8, guesses=8)
        >>> print(found.full, found.in_turn)  # in one run: 0.6875
        1 0.7969
    """
    _validate.whole_number("elements", elements, least=1)
    _validate.whole_number("guesses", guesses, least=1)
    _validate.whole_number("runs", runs, least=4)
    if guesses > elements:
        raise InvalidInputError(
            f"guesses must be at most elements={elements}, got guesses={guesses}"
        )
    if can_be_enumerated(mechanism, elements):
        table = enumerate_mechanism(mechanism, mechanism.pairs, elements=elements)
        return Knowledge(
            full=Estimate.exact(min(1.0, table.full_knowledge(guesses))),
            in_turn=Estimate.exact(min(1.0, table.in_turn(guesses))),
            how=f"enumeration of 2^{elements} coins",
        )
    if not can_be_played(mechanism) or rng is None:
        return None
    return _played(mechanism, elements, guesses, runs, rng)


def _played(
    mechanism: Playable,
    elements: int,
    guesses: int,
    runs: int,
    rng: np.random.Generator,
) -> Knowledge | None:
    mechanism.pairs.check(elements)
    full, games = [], list[_Game]()
    while len(games) < runs:
        bits = rng.integers(0, 2, size=elements, dtype=np.uint8)
        output = mechanism.run(mechanism.pairs.choose(bits), rng)
        if not games:
            work = _work(mechanism.posterior(output), elements)
            if work > _MOST_TURNS_PER_GAME:
                return None
            runs = min(runs, max(_LEAST_RUNS, _MOST_TURNS // work))
        known = _accuracy(_knowing_others(mechanism, output, bits))
        full.append(np.sort(known)[-guesses:].mean())
        at_once = mechanism.posterior(output).log_odds(np.arange(elements))
        turns = play(mechanism.posterior(output), bits).confidence
        games.append(_Game(at_once=_accuracy(at_once), in_turn=_accuracy(turns)))
    return Knowledge(
        full=Estimate.mean(full, span=_SPAN),
        in_turn=_in_turn(games, guesses),
        how=f"simulation of {runs} games, each interval holds with 99 %",
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Game:
    """The accuracy about each coin: at once, and in the order of an adaptive game."""

    at_once: NDArray[np.float64]
    in_turn: NDArray[np.float64]

    def best(self, guesses: int) -> float:
        return float(np.sort(self.at_once)[-guesses:].mean())

    def reaching(self, least: float, guesses: int) -> float:
        """Return the mean accuracy of guesses that reach a threshold, then of the rest.

        Once all elements that are left must be guessed, they are.
        """
        made = self.in_turn >= least
        n, so_far = len(made), np.append(0, np.cumsum(made))
        enough = so_far + n - np.arange(n + 1) <= guesses
        if enough.any():
            made[int(np.argmax(enough)) :] = True
        return float(self.in_turn[made][:guesses].mean())


def _in_turn(games: list[_Game], guesses: int) -> Estimate:
    if guesses == len(games[0].in_turn):  # nothing to choose
        return Estimate.mean([game.in_turn.mean() for game in games], span=_SPAN)
    searched, read = games[: len(games) // 2], games[len(games) // 2 :]
    confidence = np.concatenate([game.in_turn for game in searched])
    share = guesses / len(games[0].in_turn) * np.array(_SHARES)
    levels = np.quantile(confidence, 1 - share[share < 1], method="lower")

    def mean_at(least: float) -> float:
        return float(np.mean([game.reaching(least, guesses) for game in searched]))

    best = max(map(float, np.unique(levels)), key=mean_at)
    if mean_at(best) < np.mean([game.best(guesses) for game in searched]):
        return Estimate.mean([game.best(guesses) for game in read], span=_SPAN)
    return Estimate.mean([game.reaching(best, guesses) for game in read], span=_SPAN)


def _knowing_others(
    mechanism: Playable, output: object, bits: NDArray[np.uint8]
) -> NDArray[np.float64]:
    """Return the log-odds of each element, given the output and all other coins."""
    truth = np.where(bits > 0, 1, -1).astype(np.int8)
    known = mechanism.posterior(output)
    if isinstance(known, KnowsOthers):
        return known.knowing_others(truth)
    log_odds, element = np.empty(len(bits)), np.arange(len(bits))
    for i in element:
        posterior, others = mechanism.posterior(output), np.delete(element, i)
        posterior.reveal(others, truth[others])
        log_odds[i] = posterior.log_odds(element[i : i + 1])[0]
    return log_odds


def _work(posterior: Posterior, elements: int) -> int:
    """Return the duration of a game, in turns."""
    turns = sum(1 for _ in posterior.batches()) + elements // _PER_TURN
    return turns if hasattr(posterior, "knowing_others") else turns + elements


def _accuracy(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(special.expit(np.abs(log_odds)))
