"""Computes the noise multiplier that a privacy target needs.

The noise multiplier is searched from the side where the claim holds. Subsampling only
helps, so the search starts at the noise that suffices without it, which is known
exactly. It is halved until the claim fails, and the threshold is located in the last
halving. More noise never costs privacy, so there is one threshold, and for the returned
value the accountant has confirmed the claim.

There are two accountants. ``"pld"`` composes privacy loss distributions and is tight;
``"rdp"`` composes Renyi divergences, is used to plan most training runs, and needs more
noise.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import sqrt
from typing import Literal

from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq

from dpaudit import _validate
from dpaudit.accounting.distribution import ROUNDING, composed
from dpaudit.accounting.history import sample_rate as validate_rate
from dpaudit.errors import InvalidInputError, UncertifiedError
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit.stats.search import largest_yes

__all__ = ["Method", "about", "noise_for"]

Method = Literal["rdp", "pld"]

_LEAST, _MOST = 0.2, 1e6  # below, loss grids get too large; above, noise is useless


def noise_for(
    epsilon: float, delta: float, *, sample_rate: float, steps: int, method: Method
) -> float:
    """Return a noise multiplier with which training is (epsilon, delta)-DP.

    For Poisson sampling and adding or removing one record. It is the smallest one by
    this method, to within one part in a million.

    Args:
        epsilon: Target epsilon, above zero.
        delta: Target delta, in (1e-12, 1).
        sample_rate: Probability that a record is in a batch, in (0, 1].
        steps: Number of noisy steps.
        method: The accountant, ``"rdp"`` or ``"pld"``.

    Raises:
        UncertifiedError: No smallest noise multiplier from 0.2 to a million was found:
            the target is too weak or too strong for the method.

    Example:
        >>> round(noise_for(2.0, 1e-5, sample_rate=1.0, steps=1, method="pld"), 4)
        1.9938
        >>> round(noise_for(2.0, 1e-5, sample_rate=1.0, steps=1, method="rdp"), 4)
        2.1491
    """
    _check(epsilon, delta, sample_rate=sample_rate, steps=steps, method=method)
    spent = _METHODS[method]

    @cache  # brackets and roots are evaluated repeatedly, and each takes long
    def excess(noise: float) -> float:
        return spent(noise, sample_rate, steps, delta) - epsilon

    return _least(excess, _enough_without_sampling(epsilon, delta, steps))


def _least(excess: Callable[[float], float], start: float) -> float:
    """Return the smallest noise without excess, rounded to the safe side."""
    noise = max(start, _LEAST)
    while excess(noise) > 0:
        noise *= 2
        if noise > _MOST:
            raise UncertifiedError(
                f"a noise multiplier of {noise / 2:g} does not reach the target by "
                "this method; choose a larger epsilon or delta, or method='pld'"
            )
    while excess(noise / 2) <= 0:
        noise /= 2
        if noise < _LEAST:
            raise UncertifiedError(
                f"the target holds with a noise multiplier of {noise:g}, and below "
                f"{_LEAST:g} none is searched; choose a smaller epsilon or delta"
            )
    tol = 1e-6 * noise
    root = float(brentq(excess, noise / 2, noise, xtol=tol))
    while excess(root) > 0:  # the true root is within tol, on either side
        root += tol
    return root


def _enough_without_sampling(epsilon: float, delta: float, steps: int) -> float:
    """Return the exact noise without subsampling, plus 1 % for the accountant."""
    mu = largest_yes(lambda mu: GaussianDP(mu=mu).delta_at(epsilon) <= delta)
    if mu == 0:
        raise UncertifiedError(
            f"no noise is known to reach epsilon={epsilon!r} at delta={delta!r}"
        )
    return 1.01 * sqrt(steps) / mu


def _spent_by_rdp(noise: float, rate: float, steps: int, delta: float) -> float:
    with _quiet():
        accountant = RdpAccountant().compose(_step(noise, rate), steps)
        return float(accountant.get_epsilon(delta))


def _spent_by_pld(noise: float, rate: float, steps: int, delta: float) -> float:
    distribution = composed({(noise, rate): steps})
    return float(distribution.get_epsilon_for_delta(delta - ROUNDING))


def about(noise: float, rate: float, steps: int, delta: float) -> float:
    """Return a fast approximation of the epsilon of DP-SGD, slightly too large.

    By less than 1 % where it was tried; for explanations only, never for a claim.

    Example:
        >>> round(about(1.37, 0.1, 100, 1e-5), 1)
        4.1
    """
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    return float(accountant.compose(_step(noise, rate), steps).get_epsilon(delta))


def _step(noise: float, rate: float) -> dp_event.DpEvent:
    """Return one step of DP-SGD."""
    return dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress dp-accounting's warnings about every Renyi order that it omits.

    Omitting an order is safe: it can only make the epsilon larger.
    """
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


_METHODS: Mapping[str, Callable[[float, float, int, float], float]] = {
    "rdp": _spent_by_rdp,
    "pld": _spent_by_pld,
}


def _check(
    epsilon: float, delta: float, *, sample_rate: float, steps: int, method: str
) -> None:
    _validate.nonnegative("epsilon", epsilon)
    _validate.probability("delta", delta)
    if epsilon == 0 or not ROUNDING < delta < 1:
        raise InvalidInputError(
            f"epsilon must be > 0 and delta between {ROUNDING:g} and 1, got "
            f"epsilon={epsilon!r}, delta={delta!r}; no other target can be searched"
        )
    validate_rate("sample_rate", sample_rate)
    _validate.whole_number("steps", steps, least=1)
    if 1 - (1 - sample_rate) ** steps <= delta:
        raise InvalidInputError(
            f"delta is at least the probability that a record is ever sampled, got "
            f"delta={delta!r}, sample_rate={sample_rate!r}, steps={steps!r}; such a "
            "claim holds without noise"
        )
    if method not in _METHODS:
        raise InvalidInputError(
            f"method must be one of {sorted(_METHODS)}, got method={method!r}"
        )
