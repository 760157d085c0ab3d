"""Evidence in a sealed envelope: an in-toto statement, optionally signed.

The payload is an in-toto statement: its subjects are the hashes of the commitment and
of the result, its predicate is the evidence. The envelope (DSSE) carries the payload
as base64, so that a signature is over bytes and not over one way of writing JSON. An
envelope may have no signature: what verification recomputes is shown by arithmetic,
whoever wrote it.

This reader is stricter than the specifications: unknown fields, more than one
signature, non-standard base64 and a payload other than the canonical text are refused,
so that the file contains nothing that is not checked.

Reference: DSSE v1.0.2, https://github.com/secure-systems-lab/dsse; in-toto Statement
v1, https://github.com/in-toto/attestation.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError
from dpaudit.evidence.record import Evidence

__all__ = [
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "Envelope",
    "Signature",
    "Signer",
    "is_sealed",
    "open_envelope",
    "sealed",
]

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
PREDICATE_TYPE: Final = "urn:dpaudit:evidence:1"
_STATEMENT: Final = "https://in-toto.io/Statement/v1"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature, and a name for the key that made it.

    Attributes:
        key_id: The key's identifier in the envelope; the signature does not cover it.
        value: The signature's bytes.
    """

    key_id: str
    value: bytes


class Signer(Protocol):
    """Signs payloads; ``dpaudit.evidence.signing`` has an implementation."""

    def sign(self, payload: bytes) -> Signature:
        """Return a signature over a payload of the type ``PAYLOAD_TYPE``."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The content of the file around the evidence.

    Attributes:
        payload: The bytes that are signed.
        subject: The hashes that the statement lists as its subject, by name.
        held: The same hashes computed from the canonical text of its content.
        signature: None if nobody signed.
    """

    payload: bytes
    subject: tuple[tuple[str, str], ...]
    held: tuple[tuple[str, str], ...]
    signature: Signature | None


def is_sealed(text: str) -> bool:
    """Return whether a text appears to be an envelope; nothing is parsed."""
    return '"payloadType"' in text


def sealed(evidence: Evidence, signer: Signer | None = None) -> str:
    """Return the text of the file ``evidence.json``; ``seal`` checks it first.

    Args:
        evidence: The evidence to seal.
        signer: The signer; without one the envelope has no signature.
    """
    predicate = evidence.to_plain()
    subject: list[_canonical.Json] = [
        {"name": name, "digest": {"sha256": digest}}
        for name, digest in _held(predicate)
    ]
    statement: dict[str, _canonical.Json] = {
        "_type": _STATEMENT,
        "subject": subject,
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    payload = _canonical.text(statement).encode("ascii")
    made = [] if signer is None else [signer.sign(payload)]
    signatures: list[_canonical.Json] = [
        {"keyid": each.key_id, "sig": _to_base64(each.value)} for each in made
    ]
    return _canonical.text(
        {
            "payload": _to_base64(payload),
            "payloadType": PAYLOAD_TYPE,
            "signatures": signatures,
        }
    )


def open_envelope(text: str | bytes) -> tuple[Evidence, Envelope]:
    """Return evidence and envelope from the text of ``sealed``; nothing is verified.

    Raises:
        InvalidInputError: It is no such file, or could be read in more ways than one.
    """
    parsed = _canonical.parsed(_decoded(text))
    if isinstance(parsed, dict) and parsed.get("format") == Evidence.form:
        raise InvalidInputError("this evidence was not sealed: seal(evidence) does it")
    if other := _canonical.other_document(parsed, "evidence"):
        raise InvalidInputError(other)
    fields = {"payload", "payloadType", "signatures"}
    plain = _canonical.object_of(parsed, "an envelope", fields)
    if plain["payloadType"] != PAYLOAD_TYPE:
        raise InvalidInputError(
            f'expected "payloadType": "{PAYLOAD_TYPE}", got {plain["payloadType"]!r}'
        )
    payload = _from_base64("payload", plain["payload"])
    statement = _statement(payload)
    evidence = Evidence.of_plain(statement["predicate"])
    envelope = Envelope(
        payload=payload,
        subject=_subject(statement["subject"]),
        held=_held(statement["predicate"]),
        signature=_signature(plain["signatures"]),
    )
    return evidence, envelope


def _held(predicate: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the hashes of the content of evidence, over its canonical text."""
    registered = predicate["registration"]
    commitment, design = registered["commitment"], registered["design"]
    if commitment is None:
        first = "design", _digest(design)
    else:
        first = "commitment", str(commitment["sha256"])
    return first, ("result", _digest(predicate["result"]))


def _digest(plain: _canonical.Json) -> str:
    return hashlib.sha256(_canonical.text(plain).encode("ascii")).hexdigest()


def _decoded(text: str | bytes) -> str:
    try:
        return text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"not a text in UTF-8: {error}") from error


def _statement(payload: bytes) -> dict[str, Any]:
    fields = _canonical.object_of(
        _canonical.canonical(_decoded(payload)),
        "a statement",
        {"_type", "subject", "predicateType", "predicate"},
    )
    for name, value in (("_type", _STATEMENT), ("predicateType", PREDICATE_TYPE)):
        if fields[name] != value:
            raise InvalidInputError(
                f'expected "{name}": "{value}", got {fields[name]!r}; a newer version '
                "of dpaudit may read it"
            )
    return fields


def _subject(plain: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(plain, list):
        raise InvalidInputError(f"subject must be a list, got {plain!r:.60}")
    named = [
        _canonical.object_of(each, "a subject", {"name", "digest"}) for each in plain
    ]
    return tuple(
        (
            str(each["name"]),
            str(_canonical.object_of(each["digest"], "a digest", {"sha256"})["sha256"]),
        )
        for each in named
    )


def _signature(plain: object) -> Signature | None:
    if not isinstance(plain, list) or len(plain) > 1:
        raise InvalidInputError("signatures must be a list of one signature or none")
    if not plain:
        return None
    fields = _canonical.object_of(plain[0], "a signature", {"keyid", "sig"})
    if not isinstance(fields["keyid"], str):
        raise InvalidInputError(f"keyid must be a text, got {fields['keyid']!r}")
    return Signature(key_id=fields["keyid"], value=_from_base64("sig", fields["sig"]))


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _from_base64(name: str, value: object) -> bytes:
    """Return the bytes of a base64 text, if it is their standard encoding.

    Unused bits would allow other texts that decode to the same bytes.
    """
    try:
        decoded = base64.b64decode(str(value), validate=True)
    except ValueError as error:
        raise InvalidInputError(f"{name} must be base64: {error}") from error
    if _to_base64(decoded) != value:
        raise InvalidInputError(f"{name} must be standard base64 with nothing to spare")
    return decoded
