"""How the evidence of an adaptive audit grew, as numbers.

Bets: the wealth of a gambler who bets against the claim at fair odds. If the claim is
true, the wealth ever reaches ``1 / alpha`` with chance at most alpha, so the claim
falls where the line reaches the threshold, whenever that is. Delta takes its price off
alpha first.

Rounds: the sum of the rounds' normal scores, each counted by its share. What no round
used of its share is left to committed chance: the last step. The claim falls if the sum
ends at or above the normal quantile of what delta leaves of alpha.

Counts: right guesses beyond those that the claim's epsilon expects of so many guesses.
The number of guesses is fixed, and the claim falls if the line ends at or above the
threshold.

Each course is against one epsilon: that of the claim, or the bound found, the largest
that the game rejects.

Reference: docs/explanation/adaptive-rules.md.
"""

from dataclasses import dataclass
from math import inf, log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.adaptive import Adaptive, coupling_price

# The parts of two p-values, one guess or one round at a time.
from dpaudit.bounds.bets import log_wealth
from dpaudit.bounds.reads import Bets, Rounds
from dpaudit.bounds.rounds import MOST_CHANCE, evidence_by_round, rounds_price
from dpaudit.bounds.strength import least_refuting
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.limited import UNRESOLVED

__all__ = ["Course", "of_bets", "of_counts", "of_rounds"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """Evidence against a claim as a game went on.

    Attributes:
        evidence: After nothing, after the first guess or round, and so on.
        threshold: Where the claim falls; infinity if nothing could refute it.
        price: How much of alpha went to delta.
    """

    evidence: NDArray[np.float64]
    threshold: float
    price: float


def of_bets(bets: Bets, *, epsilon: float, delta: float, alpha: float) -> Course:
    """Return the log of the wealth after each guess.

    Example:
        >>> bets = Bets(
        ...     canaries=2, right=np.array([True, False]), stakes=np.array([0.75, 0.75])
        ... )
        >>> course = of_bets(bets, epsilon=0.0, delta=0.0, alpha=0.05)
        >>> np.exp(course.evidence)
        array([1.  , 1.5 , 0.75])
        >>> round(float(np.exp(course.threshold)), 6)
        20.0
    """
    price = coupling_price(bets.canaries, epsilon, delta)
    return Course(
        evidence=np.append(0.0, log_wealth(bets, epsilon)),
        threshold=-log(alpha - price) if price < alpha else inf,
        price=price,
    )


def of_rounds(rounds: Rounds, *, epsilon: float, delta: float, alpha: float) -> Course:
    """Return the sum of scores after each round, and last with committed chance.

    Where more than half would be chance, no game refutes the claim.
    """
    evidence, left = evidence_by_round(rounds, epsilon)
    price = rounds_price(
        canaries=rounds.canaries,
        weights=rounds.weights,
        jump=rounds.jump,
        noise=rounds.noise,
        epsilon=epsilon,
        delta=delta,
    )
    rest = alpha - price - (len(rounds.rounds) + 1) * UNRESOLVED
    possible = rest > 0 and left <= MOST_CHANCE + 1e-9
    return Course(
        evidence=np.array(evidence),
        threshold=float(-special.ndtri(rest)) if possible else inf,
        price=price,
    )


def of_counts(
    transcript: Transcript, *, epsilon: float, delta: float, alpha: float
) -> Course:
    """Return right guesses beyond what epsilon expects, guess after guess.

    What delta costs is part of the threshold. A guess not made counts as wrong.
    """
    design = transcript.design
    made = transcript.guess != 0
    right = np.zeros(design.guesses)
    right[: int(made.sum())] = (transcript.guess == transcript.truth)[made]
    chance = float(special.expit(epsilon))
    needed = least_refuting(
        ApproxDP(epsilon=epsilon, delta=delta),
        canaries=design.canaries,
        guesses=design.guesses,
        alpha=alpha,
        bound=Adaptive(),
    )
    return Course(
        evidence=np.append(0.0, np.cumsum(right - chance)),
        threshold=inf if needed is None else needed - chance * design.guesses,
        price=0.0,
    )
