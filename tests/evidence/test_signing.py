"""Signatures: by the DSSE standard, over these bytes, by this key."""

import base64
import codecs
import json
import stat

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)
from evidence_mutants import contents
from evidence_samples import KEY, KINDS, check, of_game
from securesystemslib import dsse
from securesystemslib.signer import SSlibKey

from dpaudit import OneRun, Ranking
from dpaudit.errors import InvalidInputError
from dpaudit.evidence import Registration, open_envelope, seal, verify
from dpaudit.evidence import VerificationOutcome as Outcome
from dpaudit.evidence.signing import PublicKey, SigningKey, generate_signing_key

SIGNER, STRANGER = generate_signing_key(), generate_signing_key()
EVIDENCE = of_game(OneRun(guesses=30))
SIGNED = seal(EVIDENCE, SIGNER)


def signature(found):
    return check(found, "signature")


def with_signature(text, **fields):
    plain = json.loads(text)
    plain["signatures"][0].update(fields)
    return json.dumps(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_signed_evidence_stands(kind):
    text = seal(KINDS[kind](), SIGNER)
    found = verify(text, public_key=SIGNER.public_key, accept_unchecked_counts=True)
    assert found.sound, str(found)
    assert signature(found).outcome is Outcome.HOLDS


def test_the_signature_is_over_the_encoding_that_dsse_prescribes(tmp_path):
    """Checked by hand, with nothing but the cryptography library."""
    SIGNER.public_key.write(tmp_path / "signer.pub")
    public = load_pem_public_key((tmp_path / "signer.pub").read_bytes())
    payload, (made,) = contents(SIGNED)
    kind = b"application/vnd.in-toto+json"
    message = b"DSSEv1 28 " + kind + b" " + str(len(payload)).encode() + b" " + payload
    public.verify(base64.b64decode(made["sig"]), message)
    with pytest.raises(InvalidSignature):
        public.verify(base64.b64decode(made["sig"]), payload)


def test_other_tools_for_dsse_accept_it(tmp_path):
    SIGNER.public_key.write(tmp_path / "signer.pub")
    public = load_pem_public_key((tmp_path / "signer.pub").read_bytes())
    envelope = dsse.Envelope.from_dict(json.loads(SIGNED))
    assert envelope.verify([SSlibKey.from_crypto(public)], 1)
    statement = json.loads(envelope.payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    names = [subject["name"] for subject in statement["subject"]]
    assert names == ["commitment", "result"]


def test_another_signer_is_named():
    found = verify(SIGNED, public_key=STRANGER.public_key)
    assert not found.sound
    assert "another signer" in signature(found).sentence
    assert SIGNER.public_key.key_id[:16] in signature(found).sentence


def test_a_replayed_signature_is_named():
    """A true signature by the right key, taken from other evidence."""
    other = json.loads(seal(of_game(Ranking(guesses=30)), SIGNER))
    moved = {**json.loads(SIGNED), "signatures": other["signatures"]}
    found = verify(json.dumps(moved), public_key=SIGNER.public_key)
    assert not found.sound
    assert "taken from another envelope" in signature(found).sentence


def test_a_signature_under_another_name_is_not_accepted():
    text = with_signature(SIGNED, keyid=STRANGER.public_key.key_id)
    assert not verify(text, public_key=SIGNER.public_key).sound
    assert not verify(text, public_key=STRANGER.public_key).sound
    assert not verify(
        with_signature(SIGNED, keyid=""), public_key=SIGNER.public_key
    ).sound


def test_evidence_that_should_be_signed_and_is_not_fails():
    found = verify(seal(EVIDENCE), public_key=SIGNER.public_key)
    assert not found.sound
    assert "nobody signed" in signature(found).sentence


def test_without_a_public_key_the_signer_is_only_stated():
    found = verify(SIGNED)
    assert found.sound
    assert signature(found).outcome is Outcome.NOT_CHECKED
    assert SIGNER.public_key.key_id[:16] in signature(found).sentence


def test_a_redacted_copy_is_signed_anew():
    redacted = EVIDENCE.redact()
    moved = {
        **json.loads(seal(redacted)),
        "signatures": json.loads(SIGNED)["signatures"],
    }
    assert not verify(
        json.dumps(moved), public_key=SIGNER.public_key, accept_unchecked_counts=True
    ).sound
    assert verify(
        seal(redacted, SIGNER),
        public_key=SIGNER.public_key,
        accept_unchecked_counts=True,
    ).sound


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain["signatures"].append(plain["signatures"][0]),
        lambda plain: plain["signatures"][0].update(extra=1),
        lambda plain: plain["signatures"][0].pop("keyid"),
        lambda plain: plain.update(payloadType="application/json"),
        lambda plain: plain.update(note="harmless?"),
        lambda plain: plain.update(payload=plain["payload"] + "\n"),
        lambda plain: plain.update(signatures=None),
        lambda plain: plain.update(signatures={}),
    ],
)
def test_an_envelope_with_anything_more_or_other_is_refused(change):
    plain = json.loads(SIGNED)
    change(plain)
    with pytest.raises(InvalidInputError):
        open_envelope(json.dumps(plain))


def test_a_payload_in_another_spelling_is_refused_even_if_it_is_signed():
    payload = json.dumps(json.loads(contents(SIGNED)[0]), indent=1).encode()
    made = SIGNER.sign(payload)
    plain = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [
            {"keyid": made.key_id, "sig": base64.b64encode(made.value).decode()}
        ],
    }
    with pytest.raises(InvalidInputError, match="canonical"):
        open_envelope(json.dumps(plain))


def test_keys_are_kept_in_pem_files_that_only_their_owner_reads(tmp_path):
    SIGNER.write(tmp_path / "signer.pem")
    SIGNER.public_key.write(tmp_path / "signer.pub")
    assert stat.S_IMODE((tmp_path / "signer.pem").stat().st_mode) == 0o600
    again = SigningKey.read(tmp_path / "signer.pem")
    assert (
        again.public_key == SIGNER.public_key == PublicKey.read(tmp_path / "signer.pub")
    )
    assert verify(seal(EVIDENCE, again), public_key=SIGNER.public_key).sound
    for write in (SIGNER.write, SIGNER.public_key.write):
        with pytest.raises(FileExistsError):
            write(tmp_path / "signer.pem")
    assert "PRIVATE" in (tmp_path / "signer.pem").read_text()
    assert KEY.secret.hex() not in f"{SIGNER!r}"


def test_files_that_hold_no_such_key_are_refused(tmp_path):
    curve = ec.generate_private_key(ec.SECP256R1())
    locked = ed25519.Ed25519PrivateKey.generate()
    kinds = (Encoding.PEM, PrivateFormat.PKCS8)
    files = {
        "curve": curve.private_bytes(*kinds, NoEncryption()),
        "locked": locked.private_bytes(*kinds, BestAvailableEncryption(b"x")),
        "empty": b"",
        "public": curve.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        ),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        for reader in (SigningKey.read, PublicKey.read):
            with pytest.raises(InvalidInputError, match=name):
                reader(tmp_path / name)


def test_the_mark_that_some_editors_put_before_a_text_does_not_matter():
    for marked in (codecs.BOM_UTF8 + SIGNED.encode(), "\ufeff" + SIGNED):
        assert verify(marked, public_key=SIGNER.public_key).sound
    registered = "\ufeff" + EVIDENCE.registration.to_json()
    assert Registration.from_json(registered) == EVIDENCE.registration


class Odd:
    """A public key on which everything fails."""

    key_id = "odd"

    def __init__(self, error):
        self.error = error

    def holds(self, signature, payload):
        raise self.error


def test_too_little_memory_is_not_held_against_the_auditor():
    found = verify(SIGNED, public_key=Odd(MemoryError()))
    assert signature(found).outcome is Outcome.NOT_CHECKED
    assert "too little memory" in str(found)
    found = verify(SIGNED, public_key=Odd(ZeroDivisionError("no")))
    assert signature(found).outcome is Outcome.FAILS
    assert "ZeroDivisionError: no" in str(found)
