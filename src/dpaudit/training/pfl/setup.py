"""What a pfl training is: what its objects say, and how canary users come into it.

The mechanism says the clipping bound and, if it correlates its noise, the strategy. The
accountant says what is claimed: so many compositions with this noise, and a sampling
probability. What the audit tests is that claim, not what the mechanism was set to: a
mechanism with less noise than the accountant was told of contradicts it, and that is
to be found out.

Canary users are added to cohorts by the audit, or are among those that the training's
own sampler picks.
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
    """The audit adds canary users to cohorts, beside those that were sampled.

    Attributes:
        participation: Who participates when; everybody in every round if left out. With
            a banded mechanism, left out, cohorts as far apart as it was told.
    """

    participation: Participation | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Canary users are in the population, and the training's own sampler picks them.

    Put ``audit.user_ids`` among those that it samples from, and make data sets by
    ``audit.users(make_dataset_fn)``.
    """


Insertion: TypeAlias = Added | Sampled


def read_mechanism(
    mechanism: CentrallyAppliedPrivacyMechanism,
) -> tuple[GaussianMechanism, Matrix | None]:
    """Return the Gaussian mechanism inside, and its strategy if noise is correlated.

    Raises:
        InvalidInputError: It is another mechanism.
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
    """Return the bound as it is now: it may follow a schedule."""
    return float(get_param_value(mechanism.clipping_bound))


def read_accountant(accountant: PrivacyAccountant) -> tuple[float, float, int]:
    """Return noise multiplier, sampling probability and compositions of a claim.

    Raises:
        InvalidInputError: It is of another mechanism, or noise was scaled down.
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
            "with, and is not as private as it says; audit a run with noise_scale=1"
        )
    return (
        float(accountant.noise_parameter),
        float(accountant.sampling_probability),
        int(accountant.num_compositions),
    )


def claim_of(accountant: PrivacyAccountant) -> Guarantee:
    """Return what an accountant stands for: its whole curve.

    Without sampling this is Gaussian privacy, with ``mu`` the square root of the
    compositions over the noise; a user who takes part with nothing is the neighbour.

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
