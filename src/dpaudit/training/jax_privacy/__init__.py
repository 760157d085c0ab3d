"""Audits of JAX Privacy training; needs the extra ``jax``."""

from dpaudit.errors import MissingExtraError

try:
    import jax_privacy  # noqa: F401
except ImportError as error:
    raise MissingExtraError.of(
        "auditing JAX Privacy needs jax and jax-privacy", "jax"
    ) from error
else:
    MissingExtraError.check("jax-privacy", "jax", first="2.0", below="2.1")

from dpaudit.training.jax_privacy.audit import JaxAudit
from dpaudit.training.jax_privacy.privatizer import AuditedState
from dpaudit.training.jax_privacy.records import CanaryRows, canary_loss
from dpaudit.training.jax_privacy.setup import Records, Sums

__all__ = [
    "AuditedState",
    "CanaryRows",
    "JaxAudit",
    "Records",
    "Sums",
    "canary_loss",
]
