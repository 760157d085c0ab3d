"""Sign evidence with ed25519 keys in PEM files; needs the extra ``sign``.

A signature shows that the holder of a key signed exactly these bytes. It does not show
that their content is true; verification recomputes that. A signing key is the auditor's
own and is used again; it is not the key of the coins, which is used once.
"""

from pathlib import Path
from typing import Self, final

from dpaudit._files import SECRET, new_file
from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit.evidence.envelope import PAYLOAD_TYPE, Signature

try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )
    from securesystemslib import dsse
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import CryptoSigner, SSlibKey
    from securesystemslib.signer import Signature as _Signature
except ImportError as error:
    raise MissingExtraError.of(
        "signatures are made and checked with securesystemslib", "sign"
    ) from error

__all__ = ["PublicKey", "SigningKey", "generate_signing_key"]


@final
class PublicKey:
    """The public half of a signing key, with which anyone can check signatures."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self._named = SSlibKey.from_crypto(key)

    @property
    def key_id(self) -> str:
        """A hash of the key, its identifier in envelopes."""
        return str(self._named.keyid)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.key_id == other.key_id

    def __hash__(self) -> int:
        return hash(self.key_id)

    def __repr__(self) -> str:
        return f"PublicKey({self.key_id[:16]}...)"

    def holds(self, signature: Signature, payload: bytes) -> bool:
        """Return whether the signature over the payload was made with this key."""
        # Checked by the key itself and not by its identifier, which anyone can change.
        named = _Signature(self.key_id, signature.value.hex())
        envelope = dsse.Envelope(payload, PAYLOAD_TYPE, {self.key_id: named})
        try:
            envelope.verify([self._named], 1)
        except VerificationError:
            return False
        return True

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the public key in a PEM file."""
        try:
            key = load_pem_public_key(Path(path).read_bytes())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise InvalidInputError(
                f"{path} does not hold a public key in PEM: {error}"
            ) from error
        if not isinstance(key, Ed25519PublicKey):
            raise InvalidInputError(f"{path} holds a key of another kind than ed25519")
        return cls(key)

    def write(self, path: str | Path) -> None:
        """Write the key to a new PEM file."""
        pem = self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        with new_file(path) as draft:
            draft.write_bytes(pem)


@final
class SigningKey:
    """An ed25519 key that signs evidence; neither ``repr`` nor ``str`` shows it.

    Example:
        >>> key = generate_signing_key()
        >>> signature = key.sign(b"bytes")
        >>> key.public_key.holds(signature, b"bytes")
        True
        >>> key.public_key.holds(signature, b"other bytes")
        False
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._signer = CryptoSigner(key)
        self._public = PublicKey(key.public_key())

    @property
    def public_key(self) -> PublicKey:
        """The public key, to be given to others."""
        return self._public

    def __repr__(self) -> str:
        return f"SigningKey({self._public.key_id[:16]}...)"

    def sign(self, payload: bytes) -> Signature:
        """Return a DSSE signature over a payload."""
        made = dsse.Envelope(payload, PAYLOAD_TYPE, {}).sign(self._signer)
        return Signature(key_id=made.keyid, value=bytes.fromhex(made.signature))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the signing key in a PEM file (PKCS 8, no password)."""
        try:
            key = load_pem_private_key(Path(path).read_bytes(), None)
        except (TypeError, ValueError, UnsupportedAlgorithm) as error:
            raise InvalidInputError(
                f"{path} does not hold a private key in PEM without a password: {error}"
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidInputError(f"{path} holds a key of another kind than ed25519")
        return cls(key)

    def write(self, path: str | Path) -> None:
        """Write the key to a new PEM file that only its owner may read."""
        with new_file(path, mode=SECRET) as draft:
            draft.write_bytes(self._signer.private_bytes)


def generate_signing_key() -> SigningKey:
    """Return a new signing key from the operating system's randomness."""
    return SigningKey(Ed25519PrivateKey.generate())
