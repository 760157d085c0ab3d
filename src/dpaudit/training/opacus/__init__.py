"""Audits of Opacus training; needs the extra ``opacus``."""

from dpaudit.errors import MissingExtraError

try:
    import dp_accounting  # noqa: F401
    import opacus  # noqa: F401
except ImportError as error:
    raise MissingExtraError.of(
        "auditing Opacus needs torch, opacus and dp-accounting", "opacus"
    ) from error
else:
    MissingExtraError.check("opacus", "opacus", first="1.6", below="1.7")

from dpaudit.training.opacus.audit import OpacusAudit
from dpaudit.training.opacus.insertion import Canary
from dpaudit.training.opacus.plan import audit_opacus, plan_opacus
from dpaudit.training.opacus.probe import probe_sensitivity
from dpaudit.training.opacus.ranks import shared_key
from dpaudit.training.opacus.records import with_canaries
from dpaudit.training.probe.report import Sensitivity

__all__ = [
    "Canary",
    "OpacusAudit",
    "Sensitivity",
    "audit_opacus",
    "plan_opacus",
    "probe_sensitivity",
    "shared_key",
    "with_canaries",
]
