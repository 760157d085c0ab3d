"""Noise for a target, and privacy curves; needs the extra ``accounting``."""

from dpaudit.errors import MissingExtraError

try:
    import dp_accounting  # noqa: F401
except ImportError as error:
    raise MissingExtraError.of(
        "accounting is done by dp-accounting", "accounting"
    ) from error

from dpaudit.accounting.curves import accountant_curve, claim_of
from dpaudit.accounting.noise import noise_for

__all__ = ["accountant_curve", "claim_of", "noise_for"]
