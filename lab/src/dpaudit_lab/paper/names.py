"""The figures by name, in the order of the paper."""

from collections.abc import Mapping
from types import MappingProxyType

from dpaudit.errors import InvalidInputError
from dpaudit_lab.paper import elements, guesses
from dpaudit_lab.paper.adaptive_steps import ADAPTIVE_STEPS
from dpaudit_lab.paper.figure import Figure
from dpaudit_lab.paper.local_laplace import LOCAL_LAPLACE
from dpaudit_lab.paper.sets import SET_SIZES

__all__ = ["FIGURES", "named"]

FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "guesses": guesses.BOUNDS,
        "elements": elements.BOUNDS,
        "adaptive-steps": ADAPTIVE_STEPS,
        "local-laplace": LOCAL_LAPLACE,
        "guesses-accuracy": guesses.ACCURACY,
        "elements-accuracy": elements.ACCURACY,
        "guesses-epsilons": guesses.EPSILONS,
        "elements-epsilons": elements.EPSILONS,
        "sets": SET_SIZES,
    }
)


def named(name: str) -> tuple[Figure, ...]:
    """Return the figure of a name, or every one for ``all``.

    Example:
        >>> [figure.repeats for figure in named("sets")]
        [100]
        >>> len(named("all"))
        9
    """
    if name == "all":
        return tuple(FIGURES.values())
    if name not in FIGURES:
        raise InvalidInputError(
            f"there is no figure {name!r}; choose one of {', '.join(FIGURES)}, or all"
        )
    return (FIGURES[name],)
