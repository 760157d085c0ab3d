"""The record of an audit, and how others check it.

Before the run, ``register(design, key)`` is published. After it, ``evidence_of``
collects the record, ``seal`` writes it, and anyone may ``verify`` it. Signing needs the
extra ``sign`` and is in ``dpaudit.evidence.signing``.
"""

from dpaudit.evidence.envelope import Envelope, open_envelope
from dpaudit.evidence.files import ScoreFile, ScoreFiles, score_files
from dpaudit.evidence.gathering import evidence_of
from dpaudit.evidence.loading import load
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.registration import Registration, identify_run, register
from dpaudit.evidence.verification import (
    Verification,
    VerificationCheck,
    VerificationOutcome,
)
from dpaudit.evidence.verify import seal, verify, verify_together
from dpaudit.game.tie_breaking import tie_rng

__all__ = [
    "Envelope",
    "Evidence",
    "Registration",
    "ScoreFile",
    "ScoreFiles",
    "Verification",
    "VerificationCheck",
    "VerificationOutcome",
    "evidence_of",
    "identify_run",
    "load",
    "open_envelope",
    "register",
    "score_files",
    "seal",
    "tie_rng",
    "verify",
    "verify_together",
]
