"""The mechanisms by name, for the command line.

Each entry has a one-line description of the mechanism and the gap it shows, and builds
it from one set of parameters, using those it needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from dpaudit.errors import InvalidInputError
from dpaudit.game.mechanism import Mechanism
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.noise import GaussianNoise, GeometricNoise, LaplaceNoise
from dpaudit.mechanisms.noisy_max import NoisyMax
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count

__all__ = ["MECHANISMS", "NamedMechanism", "Parameters", "named"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of the mechanisms in the catalogue.

    Attributes:
        elements: The number of elements.
        epsilon: For randomised response, Laplace and geometric noise, and noisy max.
        sigma: Standard deviation of Gaussian noise.
        set_size: Elements of a set.
        probability: The probability that all-or-nothing publishes the data.
    """

    elements: int = 1000
    epsilon: float = 1.0
    sigma: float = 1.0
    set_size: int = 10
    probability: float = 0.1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMechanism:
    """A mechanism's description, and how to build it."""

    about: str
    build: Callable[[Parameters], Mechanism[Any]]


MECHANISMS: MappingProxyType[str, NamedMechanism] = MappingProxyType(
    {
        "local-randomised-response": NamedMechanism(
            about="each of {-1, 1} is kept or flipped by itself; no gap",
            build=lambda p: LocalRandomisedResponse(epsilon=p.epsilon),
        ),
        "local-laplace": NamedMechanism(
            about="Laplace noise on each of {-1, 1}; few outputs show the worst loss",
            build=lambda p: LocalLaplace(epsilon=p.epsilon),
        ),
        "local-gaussian": NamedMechanism(
            about="Gaussian noise on each of {0, 1}; few outputs show a large loss",
            build=lambda p: LocalGaussian(sigma=p.sigma),
        ),
        "name-and-shame": NamedMechanism(
            about="one element is published; the gap of elements",
            build=lambda p: NameAndShame(elements=p.elements),
        ),
        "all-or-nothing": NamedMechanism(
            about="all data are published, but seldom; the gap of outputs",
            build=lambda p: AllOrNothing(
                elements=p.elements, probability=p.probability
            ),
        ),
        "xor": NamedMechanism(
            about="the parity of all bits; the gap of interference",
            build=lambda p: Xor(elements=p.elements),
        ),
        "xor-randomised-response": NamedMechanism(
            about="the parity of all bits, by randomised response",
            build=lambda p: XorRandomisedResponse(
                elements=p.elements, epsilon=p.epsilon
            ),
        ),
        "xor-in-pairs": NamedMechanism(
            about="the parity of each two bits; adaptive guessing closes the gap",
            build=lambda p: XorInPairs(elements=p.elements),
        ),
        "count": NamedMechanism(
            about="the number of ones, without noise",
            build=lambda p: count(p.elements),
        ),
        "noisy-count-geometric": NamedMechanism(
            about="the number of ones with two-sided geometric noise",
            build=lambda p: count(p.elements, GeometricNoise(epsilon=p.epsilon)),
        ),
        "noisy-count-laplace": NamedMechanism(
            about="the number of ones with Laplace noise",
            build=lambda p: count(p.elements, LaplaceNoise(epsilon=p.epsilon)),
        ),
        "noisy-count-gaussian": NamedMechanism(
            about="the number of ones with Gaussian noise",
            build=lambda p: count(p.elements, GaussianNoise(sigma=p.sigma)),
        ),
        "count-in-sets": NamedMechanism(
            about="the number of ones of each set, without noise",
            build=lambda p: CountInSets(elements=p.elements, set_size=p.set_size),
        ),
        "noisy-count-in-sets": NamedMechanism(
            about="the number of ones of each set with Gaussian noise: a DP-SGD step",
            build=lambda p: CountInSets(
                elements=p.elements,
                set_size=p.set_size,
                noise=GaussianNoise(sigma=p.sigma),
            ),
        ),
        "noisy-max": NamedMechanism(
            about="which of two candidates has more votes, with noise",
            build=lambda p: NoisyMax(elements=p.elements, epsilon=p.epsilon),
        ),
    }
)


def named(name: str, parameters: Parameters) -> Mechanism[Any]:
    """Return the mechanism of this name.

    Example:
        >>> named("xor", Parameters(elements=4))
        Xor(elements=4)
    """
    if name not in MECHANISMS:
        raise InvalidInputError(
            f"there is no mechanism {name!r}; known are {', '.join(MECHANISMS)}"
        )
    return MECHANISMS[name].build(parameters)
