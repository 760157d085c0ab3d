"""What a case is: a function, two neighbours and a claim; and who reported the bug.

A case is made by ``make`` in an environment that has what ``requires`` names. Then
``function`` may be called with either neighbour any number of times. The pair is that
of the public report, as data of plain Python, so that it can be shown and compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from dpaudit import Adjacency, ApproxDP, PureDP
from dpaudit.privacy.guarantees import Guarantee

__all__ = ["Bug", "Case", "Control", "approx", "pure"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A function with two neighbouring inputs, and what it claims about them.

    Attributes:
        function: Takes ``x`` or ``y`` and returns numbers, text, or tuples of them.
        x: One input.
        y: Its neighbour.
        claim: What is claimed for replacing x by y; None if it is stated as ``rho``.
        rho: The claim in zero-concentrated DP, if that is how it is stated.
        measurement: The OpenDP measurement, to audit it with generated neighbours.
        d_in: The distance between neighbours that the claim is about.
        raising: Exceptions that count as outputs.
    """

    function: Callable[[Any], object]
    x: object
    y: object
    claim: Guarantee | None = None
    rho: float | None = None
    measurement: Any = None
    d_in: Any = None
    raising: tuple[type[Exception], ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A privacy bug that was reported in public.

    Attributes:
        name: Library and number of the report.
        library: Name of the package.
        version: A released version that has the bug.
        url: The report.
        summary: What is wrong.
        fixed: The first release without it; None if it is still open.
        disclosed: Whether the report is public.
        requires: What to install.
        alone: What to install without its dependencies, which are not needed or too
            old.
        observed: What was seen when it was run.
        make: Makes the case.
    """

    name: str
    library: str
    version: str
    url: str
    summary: str
    fixed: str | None
    disclosed: bool
    requires: tuple[str, ...]
    alone: tuple[str, ...] = ()
    observed: str
    make: Callable[[], Case]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A mechanism that keeps its claim.

    Attributes:
        name: The constructor, and what it is applied to.
        requires: What to install.
        make: Makes the case.
    """

    name: str
    requires: tuple[str, ...] = ()
    make: Callable[[], Case]


def pure(epsilon: float) -> PureDP:
    """Return the claim of this epsilon for a given pair."""
    return PureDP(epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE)


def approx(epsilon: float, delta: float) -> ApproxDP:
    """Return the claim of this epsilon and delta for a given pair."""
    return ApproxDP(epsilon=epsilon, delta=delta, adjacency=Adjacency.REPLACE_ONE)
