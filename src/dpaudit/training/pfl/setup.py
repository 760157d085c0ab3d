"""Read a pfl run's configuration from its objects, and how to insert canary users.

The mechanism states the clipping bound and, if it correlates its noise, the strategy.
The accountant states the claim: a number of compositions with a noise multiplier and a
sampling probability. The audit tests that claim, not the mechanism's settings: a
mechanism with less noise than was accounted for contradicts the claim, which the audit
is to detect.

Canary users are added to cohorts by the audit, or are among those that pfl's sampler
picks.
"""

from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias, final

from pfl.hyperparam import get_param_value
from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_accountant import PrivacyAccountant
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

from dpaudit.accounting.curves import accountant_curve
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.strategy import Matrix
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Adjacency, GaussianDP, Guarantee

__all__ = [
    "Added",
    "Insertion",
    "Sampled",
    "claim_of",
    "clipping_bound",
    "read_accountant",
    "read_mechanism",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The audit adds canary users to cohorts, besides those that were sampled.

    Attributes:
        participation: The participation schedule; all in every round if left out. A
            banded mechanism requires one.
    """

    participation: Participation | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Canary users are in the population, and pfl's sampler picks them.

    Add ``audit.user_ids`` to the users that it samples from, and make data sets with
    ``audit.users(make_dataset_fn)``.
    """


Insertion: TypeAlias = Added | Sampled


def read_mechanism(
    mechanism: CentrallyAppliedPrivacyMechanism,
) -> tuple[GaussianMechanism, Matrix | None]:
    """Return the Gaussian mechanism inside, and its strategy if noise is correlated.

    Raises:
        InvalidInputError: It is another kind of mechanism.
    """
    inside = getattr(mechanism, "underlying_mechanism", None)
    if (
        not isinstance(mechanism, CentrallyAppliedPrivacyMechanism)
        or isinstance(mechanism, AdaptiveClippingGaussianMechanism)
        or not isinstance(inside, GaussianMechanism)
    ):
        raise InvalidInputError(
            "mechanism must be a CentrallyAppliedPrivacyMechanism around a "
            "GaussianMechanism or a BandedMatrixFactorizationMechanism, with a "
            f"clipping bound that users do not decide on, got {type(mechanism)!r}"
        )
    if isinstance(inside, BandedMatrixFactorizationMechanism):
        return inside, Matrix(rows=inside.query_matrix)
    return inside, None


def clipping_bound(mechanism: GaussianMechanism) -> float:
    """Return the current clipping bound: it may follow a schedule."""
    return float(get_param_value(mechanism.clipping_bound))


def read_accountant(accountant: PrivacyAccountant) -> tuple[float, float, int]:
    """Return an accountant's noise multiplier, sampling probability and compositions.

    Raises:
        InvalidInputError: It is for another mechanism, or noise was scaled down.
    """
    if not isinstance(accountant, PrivacyAccountant):
        raise InvalidInputError(
            "accountant must be one of pfl's, such as PLDPrivacyAccountant(...), got "
            f"{type(accountant)!r}"
        )
    if accountant.mechanism != "gaussian":
        raise InvalidInputError(
            "accountant must be of the Gaussian mechanism, got "
            f"mechanism={accountant.mechanism!r}"
        )
    if accountant.noise_scale != 1:
        raise InvalidInputError(
            f"noise_scale={accountant.noise_scale:g} stands for a larger cohort than "
            "is trained with: this run adds less noise than the accountant counts "
            "with, and is less private than it claims; audit a run with noise_scale=1"
        )
    return (
        float(accountant.noise_parameter),
        float(accountant.sampling_probability),
        int(accountant.num_compositions),
    )


def claim_of(accountant: PrivacyAccountant) -> Guarantee:
    """Return an accountant's whole privacy curve.

    Without sampling this is Gaussian DP, with ``mu`` the square root of the number of
    compositions over the noise multiplier; neighbours replace a user's update by zero.

    Example:
        >>> from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
        >>> print(claim_of(PLDPrivacyAccountant(
        ...     num_compositions=4, sampling_probability=1.0, mechanism="gaussian",
        ...     noise_parameter=4.0, delta=1e-5,
        ... )))
        (mu = 0.5)-GDP
    """
    noise, rate, times = read_accountant(accountant)
    if rate == 1:
        return GaussianDP(mu=sqrt(times) / noise, adjacency=Adjacency.ZERO_OUT)
    return accountant_curve([(noise, rate, times)])
