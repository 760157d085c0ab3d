"""Fair, secret coins derived from a key, any range of them at a time.

The coins are the bits of SHAKE-256 of a 256-bit key, block by block, so a shard that
knows which canaries it holds derives only their blocks, and a billion coins need no
more memory than one. Other randomness of a run that must be reproducible and secret
comes from the same key under another label; by the design of SHAKE-256 one stream
reveals nothing about another. The key is kept in its own file: it is never written into
a design, a log or a checkpoint, neither ``repr`` nor ``str`` shows it, and it cannot be
pickled.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from re import fullmatch
from typing import Final, NoReturn, Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._codec import Document
from dpaudit._files import SECRET, new_file
from dpaudit.errors import InvalidInputError, InvalidRunError

__all__ = ["BLOCK", "Coins", "Key"]

_KEY_BYTES = 32
_DIGITS: Final = rf"\s*[0-9A-Fa-f]{{{2 * _KEY_BYTES}}}\s*"
BLOCK: Final = 1 << 16  # coins; part of the format, never to change


@final
@dataclass(frozen=True, slots=True)
class Key:
    """The secret from which a run's coins are derived.

    Attributes:
        secret: 32 bytes.
        reusable: Whether it may be used for several outputs: for tests only, where no
            conclusion depends on it. See ``dpaudit.testing.fixed_key``.

    Example:
        >>> key = Key(bytes(32))  # for a real audit: Key.generate()
        >>> key
        Key()
        >>> key.stream("coins", 0, 4).hex()
        '4563558a'
    """

    secret: bytes = field(repr=False)
    reusable: bool = field(default=False, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if len(self.secret) != _KEY_BYTES:
            raise InvalidInputError(
                f"a key has {_KEY_BYTES} bytes, got {len(self.secret)}; "
                "make one with Key.generate()"
            )

    def __reduce__(self) -> NoReturn:
        raise InvalidRunError(
            "a key cannot be pickled, so that no checkpoint or task carries it along "
            "unnoticed; keep it with key.write(path), and read it where it is needed "
            "with Key.read(path)"
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @classmethod
    def generate(cls) -> Self:
        """Return a new key from the operating system's randomness."""
        return cls(secrets.token_bytes(_KEY_BYTES))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the key in a file written by ``write``."""
        if not isinstance(path, str | PathLike) or fullmatch(_DIGITS, str(path)):
            # The argument may be the secret itself, so it is not shown.
            raise InvalidInputError(
                "path must be that of the file of a key, and was not; a key itself is "
                "made by Key(secret), of 32 bytes"
            )
        if not Path(path).is_file():
            raise InvalidInputError(
                f"cannot read {path}: no such file; `dpaudit register` makes a key "
                "before the run, and so does Key.generate().write(path)"
            )
        try:
            return cls(bytes.fromhex(Path(path).read_text(encoding="ascii")))
        except ValueError as error:
            raise InvalidInputError(
                f"{path} does not hold a key: expected {2 * _KEY_BYTES} hex digits"
            ) from error

    def write(self, path: str | Path) -> None:
        """Write the key to a new file that only its owner may read."""
        with new_file(path, mode=SECRET) as draft:
            draft.write_text(self.secret.hex(), encoding="ascii")

    def to_plain(self) -> str:
        """Return the key in hex digits, for JSON documents that reveal it."""
        return self.secret.hex()

    @classmethod
    def of_plain(cls, plain: object) -> Self:
        """Return the key that a JSON document reveals."""
        try:
            key = cls(bytes.fromhex(str(plain)))
        except ValueError as error:
            raise InvalidInputError(f"key must be hex digits: {error}") from error
        if key.secret.hex() != plain:
            raise InvalidInputError("key must be small hex digits without spaces")
        return key

    def stream(self, label: str, index: int, size: int) -> bytes:
        """Return ``size`` pseudorandom bytes: block ``index`` of a named stream."""
        # Key and index have fixed lengths, so no two inputs collide.
        seed = b"dpaudit 1" + self.secret + index.to_bytes(8, "little") + label.encode()
        return hashlib.shake_256(seed).digest(size)

    def generator(self, label: str, index: int) -> np.random.Generator:
        """Return a generator seeded with block ``index`` of a named stream."""
        seed = int.from_bytes(self.stream(label, index, 32), "little")
        return np.random.Generator(np.random.PCG64(seed))

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """Return the committed uniform numbers of a game, in [0, 1).

        They are derived from raw words, which are the same in every version of numpy.
        """
        raw = self.generator("uniforms", 0).bit_generator.random_raw(count)
        return np.asarray((raw >> np.uint64(11)) * 2.0**-53)

    def sealed(
        self, label: str, number: int, plain: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Return bytes encrypted with the key; encrypting them again decrypts them.

        Args:
            label: The label of the stream.
            number: A nonce, never reused under this label: two texts encrypted under
                one number reveal their difference.
            plain: The bytes to encrypt.

        Example:
            >>> key, plain = Key(bytes(32)), np.arange(3, dtype=np.uint8)
            >>> key.sealed("it", 7, key.sealed("it", 7, plain))
            array([0, 1, 2], dtype=uint8)
        """
        return plain ^ np.frombuffer(self.stream(label, number, len(plain)), np.uint8)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Coins(Document):
    """One fair coin per canary; bit 1 means S = +1, included.

    Example:
        >>> coins = Coins(key=Key(bytes(32)), count=1_000_000_000)
        >>> coins.bits(999_999_990, 1_000_000_000)
        array([1, 1, 0, 0, 0, 1, 1, 0, 0, 1], dtype=uint8)
    """

    key: Key
    count: int

    form = "dpaudit.coins.1"  # it holds the key: only for after the run

    def __post_init__(self) -> None:
        _validate.kind("key", self.key, Key)
        _validate.whole_number("count", self.count, least=1)

    def bits(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """Return the coins of canaries ``start`` to ``stop``, excluding ``stop``."""
        stop = self.count if stop is None else stop
        if not 0 <= start < stop <= self.count:
            raise InvalidInputError(
                f"expected 0 <= start < stop <= {self.count}, got {start=}, {stop=}"
            )
        blocks = range(start // BLOCK, (stop - 1) // BLOCK + 1)
        packed = np.concatenate([self.packed(block) for block in blocks])
        bits = np.unpackbits(packed, bitorder="little")
        first = start - blocks.start * BLOCK
        return bits[first : first + stop - start]

    def at(self, index: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the coins of the given canaries, deriving only their blocks."""
        if len(index) and not (index.min() >= 0 and index.max() < self.count):
            raise InvalidInputError(f"coins are numbered from 0 to {self.count - 1}")
        if not len(index):
            return np.empty(0, np.uint8)
        blocks, place = np.unique(index // BLOCK, return_inverse=True)
        packed = np.stack([self.packed(int(block)) for block in blocks])
        inside = index % BLOCK
        bits = packed[place, inside >> 3] >> (inside & 7).astype(np.uint8) & 1
        return np.asarray(bits)

    def packed(self, block: int) -> NDArray[np.uint8]:
        """Return the coins of a whole block, eight per byte, lowest bit first."""
        return np.frombuffer(self.key.stream("coins", block, BLOCK // 8), np.uint8)
