"""Check where evidence comes from: its signature, its registration, its key.

Registered and stated values are compared field by field. Computed numbers are compared
to one part in ten million: another machine, or another version of numpy or scipy, may
round the last digits differently. Everything else must be identical.
"""

from math import isclose
from types import MappingProxyType
from typing import Protocol

from dpaudit.evidence.envelope import Envelope, Signature
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.registration import Registration
from dpaudit.evidence.verification import VerificationCheck, fails, holds, unchecked
from dpaudit.game.coins import Coins
from dpaudit.game.design import Design
from dpaudit.game.transcript import Transcript

__all__ = [
    "Verifier",
    "check_commitment",
    "check_designs",
    "check_registration",
    "check_signature",
    "check_subject",
    "differences",
    "wrong_coins",
]

_CLOSE = 1e-7
# Computed numbers, and how far apart they may be near 0: searches converge to 1e-10,
# and a p-value may be arbitrarily small.
_COMPUTED: MappingProxyType[str, float] = MappingProxyType(
    {
        "epsilon_lower": 1e-9,
        "ceiling": 1e-9,
        "p_value": 0.0,
        "detectable_accuracy": 1e-9,
        "parameter_lower": 1e-9,
        "model_epsilon": 1e-9,
        "edges": 1e-9,
        "false_positive": 1e-9,
        "true_positive": 1e-9,
    }
)


def differences(stated: object, found: object, path: str = "") -> list[str]:
    """Return where two JSON values differ, with both values."""
    if isinstance(stated, dict) and isinstance(found, dict):
        return [
            each
            for name in sorted(stated.keys() | found.keys())
            for each in differences(stated.get(name), found.get(name), f"{path}.{name}")
        ]
    if isinstance(stated, list) and isinstance(found, list):
        if len(stated) != len(found):
            return [f"{path[1:]} has {len(stated)} entries and not {len(found)}"]
        return [
            each
            for place, pair in enumerate(zip(stated, found, strict=True))
            for each in differences(*pair, f"{path}[{place}]")
        ]
    if _same(stated, found, path):
        return []
    return [f"{path[1:]} is stated as {stated!r:.60} and derives as {found!r:.60}"]


def _is_free(path: str) -> bool:
    """Return whether a path is in the setting, whose names are the user's own."""
    return f"{path}.".find(".setting.") >= 0


def _same(stated: object, found: object, path: str) -> bool:
    if type(stated) is not type(found):
        return False
    tiny = _COMPUTED.get(path.rpartition(".")[2].partition("[")[0])
    if tiny is not None and not _is_free(path):
        match stated, found:
            case float(), float():
                return isclose(stated, found, rel_tol=_CLOSE, abs_tol=tiny)
    return bool(stated == found)


class Verifier(Protocol):
    """A public key; ``dpaudit.evidence.signing`` reads one from a file."""

    @property
    def key_id(self) -> str:
        """The identifier of the key in envelopes."""
        ...

    def holds(self, signature: Signature, payload: bytes) -> bool:
        """Return whether the signature over the payload was made with this key."""
        ...


def check_signature(
    envelope: Envelope, public_key: Verifier | None
) -> VerificationCheck:
    """Check the signature of an envelope."""
    name, signature = "signature", envelope.signature
    match signature, public_key:
        case None, None:
            return unchecked(name, "it is not signed; anyone could have written it")
        case None, _:
            return fails(name, "a public key was given, but nobody signed this")
        case Signature(key_id=key_id), None:
            return unchecked(
                name,
                f"it states that the key {key_id[:16]!r} signed it; no public key was "
                "given to check that with",
            )
        case Signature(), _:
            return _signed(signature, envelope.payload, public_key)
    raise AssertionError  # pragma: no cover (all four cases are above)


def _signed(signature: Signature, payload: bytes, key: Verifier) -> VerificationCheck:
    name, same = "signature", signature.key_id == key.key_id
    if key.holds(signature, payload):
        if same:
            text = f"the key {key.key_id[:16]}, as given, signed these very bytes"
            return holds(name, text)
        return fails(
            name,
            f"the key given signed these bytes, but the envelope names another, "
            f"{signature.key_id[:16]!r}: it was changed afterwards",
        )
    if not same:
        return fails(
            name,
            f"another signer: the envelope names the key {signature.key_id[:16]!r}, "
            f"and the one given is {key.key_id[:16]}",
        )
    return fails(
        name,
        "the signature is not over this evidence: either it was taken from another "
        "envelope, or the evidence was changed after it was signed",
    )


def check_subject(envelope: Envelope) -> VerificationCheck:
    """Check that the statement's hashes are those of its content."""
    named, held = envelope.subject, envelope.held
    if named == held:
        names = " and ".join(f"the {name}" for name, _ in held)
        return holds("subject", f"the statement is about {names} that it holds")
    odd = [name for name, digest in held if (name, digest) not in named]
    return fails(
        "subject",
        f"the statement is about another {' and '.join(odd) or 'thing too'}: its "
        "hashes are not those of what it holds",
    )


def check_registration(
    evidence: Evidence, given: Registration | None
) -> list[VerificationCheck]:
    """Check the registration in the evidence against a given copy."""
    name, held = "registration", evidence.registration
    what = "design and commitment" if held.commitment else "design"
    if given is None:
        return [
            unchecked(
                name,
                f"no copy of the registration was given; nothing shows that {what} "
                f"{'were' if held.commitment else 'was'} fixed before the run",
            )
        ]
    odd = _unlike(held.design, given.design)
    if not odd and held.commitment and held.commitment == given.commitment:
        return [
            holds(name, "design and commitment are those of the registration given"),
            unchecked(
                "time",
                "that they came before the run rests on the date of your copy of the "
                "registration, which the evidence cannot show",
            ),
        ]
    if odd:
        return [fails(name, f"the wrong design: it was registered otherwise; {odd}")]
    if given.commitment is None:
        text = "no key was registered: nothing shows that coins were flipped"
        if held.commitment is not None:
            text = (
                "the copy given is of the design alone, without a commitment: nothing "
                "shows that the key was fixed"
            )
        date = "that the design was fixed then rests on the date of your copy"
        return [
            holds("registered design", "the design is that of the copy given"),
            unchecked("time", f"{text} before the run, and {date}"),
        ]
    if held.commitment is None:
        return [
            fails(
                name,
                "a commitment to a key was registered, and the evidence has none: its "
                "coins are not those registered",
            )
        ]
    return [
        fails(
            name,
            "the wrong commitment: the design is the one registered, but not the key, "
            "so that these are other coins",
        )
    ]


def check_designs(evidence: Evidence) -> VerificationCheck:
    """Check that registration, guesses and result have the same design."""
    audit, registered = evidence.result, evidence.registration
    parts = {"result": audit.design}
    if isinstance(evidence.guesses, Transcript):
        parts["transcript"] = evidence.guesses.design
    elif (kept := evidence.result.transcript) is not None:
        parts["emptied transcript"] = kept.design
    for part, design in parts.items():
        odd = _unlike(design, registered.design)
        if odd:
            return fails(
                "design", f"the {part} is of another design than the registered; {odd}"
            )
    if audit.commitment != registered.commitment:
        return fails("design", "the result names another commitment than registered")
    return holds("design", f"{_listed(['registration', *parts])} have one design")


def check_commitment(evidence: Evidence) -> VerificationCheck:
    """Check that key and design hash to the registered commitment."""
    name, registered = "commitment", evidence.registration
    if registered.commitment is None:
        return unchecked(
            name,
            "the coins do not come from a key; nothing shows that they were fair and "
            "flipped before the run",
        )
    if evidence.key is None:
        return unchecked(
            name,
            "the key was kept back; the commitment is stated, and whoever has the key "
            "can check it",
        )
    if registered.commitment.holds_for(evidence.key, registered.design):
        return holds(
            name,
            f"key and design give the commitment {registered.commitment.sha256[:16]}",
        )
    text = "key and design do not give the commitment"
    if not isinstance(evidence.guesses, Transcript):
        return fails(name, f"{text}: the wrong key, or the wrong design")
    if wrong_coins(evidence.guesses, evidence):
        return fails(
            name,
            f"{text}: the wrong key, as the coins in the transcript are not its coins",
        )
    return fails(
        name,
        f"{text}: the wrong design, or another commitment; the coins in the "
        "transcript are the key's",
    )


def wrong_coins(transcript: Transcript, evidence: Evidence) -> int:
    """Return how many coins of a transcript are not those of the key."""
    assert evidence.key is not None
    coins = Coins(key=evidence.key, count=transcript.design.canaries)
    derived = 2 * coins.at(transcript.index).astype(int) - 1
    return int((derived != transcript.truth).sum())


def _unlike(design: Design, registered: Design) -> str:
    """Return the first difference between two designs; "" if there is none."""
    if design.to_json() == registered.to_json():
        return ""
    changes = differences(design.to_plain(), registered.to_plain())
    # Two spellings of one number are different texts, and the text is committed to.
    first = changes[0] if changes else "a number is written otherwise"
    return first.replace("derives as", "was registered as")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1]
