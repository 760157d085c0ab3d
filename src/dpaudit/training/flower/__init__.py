"""Audits of federated training with Flower; needs the extra ``flower``."""

from dpaudit.errors import MissingExtraError

try:
    import flwr.serverapp  # noqa: F401
except ImportError as error:
    raise MissingExtraError.of("auditing Flower needs flwr", "flower") from error

from dpaudit.training.flower.audit import FlowerAudit
from dpaudit.training.flower.messages import AuditedStrategy, canary_mod
from dpaudit.training.flower.probing import probe_clients
from dpaudit.training.flower.setup import Nodes, Replies, canary_clients

__all__ = [
    "AuditedStrategy",
    "FlowerAudit",
    "Nodes",
    "Replies",
    "canary_clients",
    "canary_mod",
    "probe_clients",
]
