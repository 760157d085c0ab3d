"""Noisy max: publish the candidate with the most votes, after adding noise.

Gumbel noise of scale ``2 / epsilon`` is added to each count of votes and the largest
sum wins; then candidate ``o`` wins with probability proportional to ``e^(epsilon
count_o / 2)``, which is the exponential mechanism. Replacing a vote moves two counts by
one, so no probability changes by more than a factor ``e^epsilon``.

It is audited with votes for candidate 0 or candidate 1. The output depends on the coins
only through the number ``N`` of votes for candidate 1, so all coins share one loss. A
winner without votes is no evidence, because its probability does not change when ``N``
and ``n - N`` are exchanged.

Reference: McSherry and Talwar, "Mechanism design via differential privacy", 2007;
Dwork and Roth, "The algorithmic foundations of differential privacy", section 3.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs, Records
from dpaudit.mechanisms._shared import one_each
from dpaudit.mechanisms.count_loss import rising
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior, log_fair, log_sum
from dpaudit.mechanisms.loss_distribution import LossDistribution, OutputComponent
from dpaudit.mechanisms.output_likelihood import OutputLikelihood, count_likelihood
from dpaudit.privacy.guarantees import Adjacency, PureDP

__all__ = ["NoisyMax"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyMax:
    """Publish the candidate with the largest noisy count of votes.

    Attributes:
        elements: The number of votes, each the index of a candidate.
        epsilon: An upper bound on its privacy level, approached as votes grow.
        candidates: The number of candidates.

    Example:
        >>> mechanism = NoisyMax(elements=3, epsilon=2.0)
        >>> mechanism.distribution(np.array([1, 1, 0])).round(4)  # e^1 to e^2
        array([0.2689, 0.7311])
        >>> mechanism.log_odds(1).round(4)
        array([0.7123, 0.7123, 0.7123])
    """

    elements: int
    epsilon: float
    candidates: int = 2

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=1)
        _validate.nonnegative("epsilon", self.epsilon)
        _validate.whole_number("candidates", self.candidates, least=2)

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP."""
        return PureDP(epsilon=self.epsilon, adjacency=Adjacency.REPLACE_ONE)

    @property
    def pairs(self) -> Pairs:
        """The pair vector: a vote for candidate 0 or for candidate 1."""
        return Pairs(x=0, y=1)

    def run(self, data: Records, rng: np.random.Generator) -> int:
        """Return the winner."""
        one_each(data, self.elements)
        return int(np.argmax(self._scores(data) + rng.gumbel(size=self.candidates)))

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return each candidate's probability of winning."""
        probabilities: NDArray[np.float64] = special.softmax(self._scores(data))
        return probabilities

    def outputs(self, elements: int) -> Sequence[int]:
        """Return the candidates, whatever the number of elements."""
        del elements
        return range(self.candidates)

    def log_odds(self, output: int) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element."""
        return self.posterior(output).log_odds(np.arange(self.elements))

    def posterior(self, output: int) -> ExchangeablePosterior:
        """Return the posterior of the coins, which revealed coins can update."""
        if not 0 <= output < self.candidates:
            raise InvalidInputError(
                f"{output=!r} is none of the {self.candidates} candidates"
            )
        rows = self._log_probabilities(self.elements)[[min(output, 2)]]
        return ExchangeablePosterior(rows)

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution of this many elements: all share one loss."""
        _, one, other = self._log_probabilities(elements)
        rest = log_fair(elements - 1)
        size = log_sum(rest + one[1:]) - log_sum(rest + one[:-1])
        every = log_fair(elements)
        voted = 2 * np.exp(log_sum(every + one))  # candidate 0 or 1 wins
        unvoted = (self.candidates - 2) * np.exp(log_sum(every + other))
        loss = rising(np.array([0.0, size]), np.array([unvoted, voted]))
        kind = OutputComponent(probability=1.0, groups=1, size=elements, loss=loss)
        return LossDistribution(elements=elements, kinds=(kind,))

    def output_likelihood(self, elements: int) -> list[OutputLikelihood]:
        """Return the likelihood of outputs, given the number of votes."""
        one, other, unvoted = self._log_probabilities(elements)
        rows = [one, other, *[unvoted] * (self.candidates - 2)]
        return count_likelihood(1, np.stack(rows))

    def _scores(self, data: Records) -> NDArray[np.float64]:
        votes = np.bincount(np.asarray(data), minlength=self.candidates)
        if len(votes) > self.candidates:
            raise InvalidInputError(
                f"votes must be from 0 to {self.candidates - 1}, got {len(votes) - 1}"
            )
        return np.multiply(votes, self.epsilon / 2, dtype=np.float64)

    def _log_probabilities(self, elements: int) -> NDArray[np.float64]:
        """Return ln P[o wins | N] for o = 0, 1 and any other, N from 0 to n."""
        n = np.arange(elements + 1)
        scores = np.stack([elements - n, n, np.zeros_like(n)]) * (self.epsilon / 2)
        sizes = np.array([1, 1, self.candidates - 2])[:, np.newaxis]
        total: NDArray[np.float64] = special.logsumexp(scores, axis=0, b=sizes)
        return scores - total
