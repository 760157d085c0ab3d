"""Audits of federated training with pfl; needs the extra ``pfl``."""

from dpaudit.errors import MissingExtraError

try:
    import pfl  # noqa: F401
except ImportError as error:
    raise MissingExtraError.of(
        "auditing pfl needs pfl, with a framework such as torch", "pfl"
    ) from error

from dpaudit.training.pfl.audit import PflAudit
from dpaudit.training.pfl.setup import Added, Sampled

__all__ = ["Added", "PflAudit", "Sampled"]
