"""Audits of Opacus training; needs the extra ``opacus``."""

from dpaudit.errors import MissingExtraError

try:
    import opacus  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "auditing Opacus needs torch and opacus: pip install 'dpaudit[opacus]'"
    ) from error

from dpaudit.training.opacus.audit import OpacusAudit

__all__ = ["OpacusAudit"]
