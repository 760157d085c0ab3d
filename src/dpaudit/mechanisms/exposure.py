"""Mechanisms that expose few elements, or all of them but rarely.

``NameAndShame`` publishes one element chosen uniformly: no output exposes more than
one, so a guesser that must guess many learns nothing about most. ``AllOrNothing`` runs
another mechanism with some probability and outputs nothing otherwise: a violation
affects all elements, but a single run rarely shows it. They are the paper's examples of
the gaps of elements and of outputs. Neither is epsilon-DP for any epsilon, but both
have a delta: an element that is published with probability 1 / n, or a mechanism that
runs with probability ``w``, moves at most that much probability.

More precisely, all-or-nothing scales the whole privacy curve: its outputs other than
None have ``w`` times their probabilities, so ``delta(epsilon)`` becomes ``w
delta(epsilon)`` at every epsilon of zero or more, and no point of the curve is lost.

Reference: Keinan, Shenfeld and Ligett, appendix "Gaps", Definitions "Name And Shame"
and "All Or Nothing", https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.mechanism import FixedPosterior, Mechanism, Posterior
from dpaudit.game.pairs import Pairs, Records
from dpaudit.mechanisms._shared import NOTHING, ElementByElement, one_each
from dpaudit.mechanisms.loss_distribution import (
    DiscreteLoss,
    LossDistribution,
    OutputComponent,
)
from dpaudit.mechanisms.output_likelihood import (
    OutputLikelihood,
)
from dpaudit.mechanisms.table import digits, product_distribution
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PrivacyCurve

__all__ = ["AllOrNothing", "Identity", "NameAndShame"]

_CERTAIN = DiscreteLoss(values=np.array([np.inf]), probabilities=np.ones(1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NameAndShame(ElementByElement[int]):
    """Publish one element, chosen uniformly.

    Reference: Keinan, Shenfeld and Ligett, "prop:ora-efficacy-for-nas".

    Attributes:
        elements: The number of elements of the data.

    Example:
        >>> mechanism = NameAndShame(elements=4)
        >>> data = mechanism.pairs.choose(np.array([1, 0, 0, 1]))
        >>> data
        array([ 1, -2, -3,  4])
        >>> mechanism.log_odds(-3)  # element 2, and its coin fell -1
        array([  0.,   0., -inf,   0.])
        >>> print(mechanism.guarantee)
        (epsilon = 0, delta = 0.25)-DP
    """

    elements: int

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=1)

    @property
    def guarantee(self) -> ApproxDP:
        """(0, 1 / n)-DP: the differing element is named with probability 1 / n."""
        return ApproxDP(
            epsilon=0.0, delta=1 / self.elements, adjacency=Adjacency.REPLACE_ONE
        )

    @property
    def pairs(self) -> Pairs:
        """The pair vector: -(i + 1) or i + 1, so that an output names its element."""
        name = np.arange(1, self.elements + 1)
        return Pairs(x=-name, y=name)

    def run(self, data: Records, rng: np.random.Generator) -> Any:  # noqa: ANN401 (whatever the data hold)
        """Return one element of the data."""
        one_each(data, self.elements)
        return data[rng.integers(self.elements)]

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return the probabilities of naming each element with -1, then with +1."""
        shamed = np.asarray(data) > 0
        return np.concatenate([~shamed, shamed]) / len(shamed)

    def outputs(self, elements: int) -> Sequence[int]:
        """Return every element's name with -1, then with +1."""
        name = range(1, elements + 1)
        return [*(-i for i in name), *name]

    def log_odds(self, output: int) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element."""
        named = abs(int(output)) - 1
        if not 0 <= named < self.elements:
            raise InvalidInputError(
                f"{output=!r} names none of elements={self.elements}; run the "
                "mechanism on data chosen by its pairs"
            )
        log_odds = np.zeros(self.elements)
        log_odds[named] = np.copysign(np.inf, output)
        return log_odds

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution: exactly one element is known with certainty."""
        kind = OutputComponent(probability=1.0, groups=1, size=1, loss=_CERTAIN)
        return LossDistribution(elements=elements, kinds=(kind,))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(ElementByElement[NDArray[np.integer]]):
    """Publish the data, zeros and ones.

    Example:
        >>> Identity().log_odds(np.array([1, 0]))
        array([ inf, -inf])
    """

    @property
    def guarantee(self) -> ApproxDP:
        """(0, 1)-DP, which is no privacy."""
        return NOTHING

    @property
    def pairs(self) -> Pairs:
        """The pair vector: 0 or 1."""
        return Pairs(x=np.int8(0), y=np.int8(1))

    def run(self, data: Records, rng: np.random.Generator) -> Records:
        """Return the data."""
        del rng
        return np.array(data)

    def distribution(self, data: Records) -> NDArray[np.float64]:
        """Return the probability of each of the 2^n outputs, which is 0 or 1."""
        return product_distribution([np.array([1.0 - bit, bit]) for bit in data])

    def outputs(self, elements: int) -> Sequence[NDArray[np.integer]]:
        """Return the outputs; bit i of an output's number is element i."""
        return list(digits([2] * elements))

    def log_odds(self, output: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return plus or minus infinity for each element."""
        return np.where(np.asarray(output) > 0, np.inf, -np.inf)

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution: all elements are known with certainty."""
        kind = OutputComponent(probability=1.0, groups=elements, size=1, loss=_CERTAIN)
        return LossDistribution(elements=elements, kinds=(kind,))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllOrNothing:
    """Run a mechanism with some probability; otherwise publish None.

    It has the capabilities of the inner mechanism: they are properties that are absent,
    as ``hasattr`` shows, if the inner mechanism lacks them.

    Reference: Keinan, Shenfeld and Ligett, "prop:ora-efficacy-for-aon".

    Attributes:
        elements: The number of elements of the data.
        probability: The probability that the mechanism is run.
        inner: The mechanism; by default the data are published.

    Example:
        >>> mechanism = AllOrNothing(elements=3, probability=0.1)
        >>> mechanism.run(np.array([0, 1, 1]), np.random.default_rng(1)) is None
        True
        >>> mechanism.log_odds(None)
        array([0., 0., 0.])
        >>> print(mechanism.guarantee)
        (epsilon = 0, delta = 0.1)-DP
    """

    elements: int
    probability: float
    # Any, as its capabilities are not known here.
    inner: Any = Identity()

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=1)
        _validate.probability("probability", self.probability)

    @property
    def guarantee(self) -> Guarantee:
        """The inner curve, scaled; (0, probability)-DP if the inner one has none."""
        return _scaled(getattr(self.inner, "guarantee", NOTHING), self.probability)

    @property
    def pairs(self) -> Pairs:
        """The pair vector of the inner mechanism."""
        pairs: Pairs = self.inner.pairs
        return pairs

    def run(self, data: Records, rng: np.random.Generator) -> Any:  # noqa: ANN401 (the inner mechanism's output)
        """Return the inner mechanism's output, or None."""
        one_each(data, self.elements)
        inner: Mechanism[Any] = self.inner
        return inner.run(data, rng) if rng.random() < self.probability else None

    @property
    def distribution(self) -> Callable[[Records], NDArray[np.float64]]:
        """A function from data to the probabilities of the inner outputs and None."""
        inner = self.inner.distribution
        return lambda data: np.append(
            self.probability * inner(data), 1 - self.probability
        )

    @property
    def outputs(self) -> Callable[[int], Sequence[Any]]:
        """A function from a number of elements to the inner outputs, then None."""
        inner = self.inner.outputs
        return lambda elements: [*inner(elements), None]

    @property
    def log_odds(self) -> Callable[[Any], NDArray[np.float64]]:
        """A function from an output to the log-odds of +1; 0 for None."""
        inner = self.inner.log_odds
        return lambda output: self._silence() if output is None else inner(output)

    @property
    def posterior(self) -> Callable[[Any], Posterior]:
        """A function from an output to the posterior, which revealed coins update."""
        inner = self.inner.posterior

        def posterior(output: Any) -> Posterior:  # noqa: ANN401 (the inner mechanism's)
            if output is None:
                return FixedPosterior(self._silence())
            conditional: Posterior = inner(output)
            return conditional

        return posterior

    @property
    def loss_distribution(self) -> Callable[[int], LossDistribution]:
        """A function from a number of elements to their loss distribution."""
        inner = self.inner.loss_distribution

        def loss_distribution(elements: int) -> LossDistribution:
            losses: LossDistribution = inner(elements)
            kinds = (
                replace(k, probability=self.probability * k.probability)
                for k in losses.kinds
            )
            return LossDistribution(elements=elements, kinds=tuple(kinds))

        return loss_distribution

    @property
    def output_likelihood(self) -> Callable[[int], list[OutputLikelihood]]:
        """A function from a number of elements to the likelihood of outputs."""
        inner = self.inner.output_likelihood

        def output_likelihood(elements: int) -> list[OutputLikelihood]:
            kinds: list[OutputLikelihood] = inner(elements)
            return [
                replace(kind, probability=self.probability * kind.probability)
                for kind in kinds
            ]

        return output_likelihood

    def _silence(self) -> NDArray[np.float64]:
        return np.zeros(self.elements)


def _scaled(guarantee: Guarantee, probability: float) -> Guarantee:
    """Return the guarantee with every delta multiplied by a probability.

    Between its points a guarantee is linear in ``e^epsilon``, and scaling keeps it
    linear. To the left of its first point it is not, so 0 is added as a point.
    """
    epsilons, deltas = guarantee.points()
    if epsilons[0] > 0:
        epsilons = np.append(0.0, epsilons)
        deltas = np.append(guarantee.delta_at(0.0), deltas)
    scaled = probability * deltas
    if len(epsilons) == 1:
        return ApproxDP(
            epsilon=0.0, delta=float(scaled[0]), adjacency=guarantee.adjacency
        )
    return PrivacyCurve(epsilons=epsilons, deltas=scaled, adjacency=guarantee.adjacency)
