"""What is published before a run: the design, and the commitment to it and to the key.

A dated copy (in a public repository, at a time-stamping service, in a letter to the
reviewer) shows later that nothing was chosen after the fact. The file itself holds no
date: a date that the auditor writes proves nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from re import fullmatch
from typing import Self, final

from dpaudit import _canonical
from dpaudit._codec import Document
from dpaudit.errors import InvalidInputError, on_one_line
from dpaudit.evidence.files import file_digest
from dpaudit.game.coins import Key
from dpaudit.game.design import Commitment, Design
from dpaudit.game.setting import Setting

__all__ = ["Registration", "identify_run", "read_design", "register"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Registration(Document):
    """A design, and the hash that binds its author to it and to a key.

    Attributes:
        design: What the audit fixes beforehand.
        commitment: SHA-256 of key and design, and of the key; None if the coins do not
            come from a key, so that nobody can show later that they were flipped before
            the run.
    """

    design: Design
    commitment: Commitment | None

    form = "dpaudit.registration.1"

    @property
    def program(self) -> str | None:
        """The SHA-256 of the program, if the design names one (``identify_run``)."""
        return _words(self.design.setting.program_sha256)

    @property
    def nonce(self) -> str | None:
        """The text that a verifier asked to include, if the design holds one."""
        return _words(self.design.setting.nonce)

    @classmethod
    def of_plain(cls, plain: object) -> Self:
        """Return the registration that parsed JSON holds, for ``design.json``.

        The design must be written as ``to_json`` writes it. It was committed to, and
        must not be readable in another way: a number is ``1`` and not ``true``, and
        there is no ``-0.0``.
        """
        registration = super(Registration, cls).of_plain(plain)
        assert isinstance(plain, dict)
        _check_spelling(plain["design"], registration.design)
        return registration


def read_design(plain: object) -> Design:
    """Return the design that parsed JSON describes, if it is written canonically.

    Raises:
        InvalidInputError: It is no design, or writes a value in another way than
            ``to_json``.

    Example:
        >>> from dpaudit import OneRun, PureDP
        >>> claim = PureDP(epsilon=1.0)
        >>> design = Design(canaries=10, rules=OneRun(guesses=5), claim=claim)
        >>> text = design.to_json().replace('"canaries":10', '"canaries":10.0')
        >>> read_design(_canonical.parsed(text))
        Traceback (most recent call last):
        dpaudit.errors.InvalidInputError: the design writes canaries as 10.0, which is \
read as 10: others may read it otherwise
    """
    design = Design.of_plain(plain)
    _check_spelling(plain, design)
    return design


def _check_spelling(plain: object, design: Design) -> None:
    odd = _canonical.unlike(plain, design.to_plain())
    if odd:
        raise InvalidInputError(
            f"the design writes {odd}: others may read it otherwise"
        )


def identify_run(
    *, program: str | Path | None = None, nonce: str | None = None
) -> Setting:
    """Return the setting of a design that names the program and a verifier's nonce.

    The commitment is to the whole design, so neither can be changed afterwards.

    Args:
        program: The file that will be audited, program or model, to record its SHA-256.
            Or the SHA-256 itself, as ``sha256:`` and 64 hex digits.
        nonce: A text that a verifier made up: a registration that contains it was made
            later.

    Example:
        >>> identify_run(nonce="from the reviewer, 3 May")
        Setting(nonce='from the reviewer, 3 May')
    """
    if nonce is not None and not (nonce and nonce.isprintable()):
        raise InvalidInputError(
            f"the nonce must be a text that can be printed, got nonce={nonce!r}"
        )
    digest = None if program is None else _program(program)
    return Setting(program_sha256=digest, nonce=nonce)


def _program(program: str | Path) -> str:
    """Return the SHA-256 of a program's file, or the one given in its place."""
    given = fullmatch("sha256:([0-9a-f]{64})", str(program))
    if given is not None:
        return given[1]
    if not Path(program).is_file():
        raise InvalidInputError(
            "the program must be one file, or sha256: and 64 hex digits, got "
            f"{program}; of a folder give an archive"
        )
    return file_digest(program)


def _words(value: str | None) -> str | None:
    """Return a text of the setting on one line; the user may have written anything."""
    return on_one_line(value) if value else None


def register(design: Design, key: Key) -> Registration:
    """Return what to publish before a run that uses this design and this key.

    Raises:
        InvalidInputError: The design holds a value that can be written in two ways.

    Example:
        >>> from dpaudit import OneRun, PureDP
        >>> claim = PureDP(epsilon=1.0)
        >>> design = Design(canaries=10, rules=OneRun(guesses=5), claim=claim)
        >>> registration = register(design, Key(bytes(32)))
        >>> Registration.from_json(registration.to_json()) == registration
        True
    """
    commitment = Commitment.to(key, design)
    read_design(_canonical.parsed(design.to_json()))  # or nobody could read it again
    return Registration(design=design, commitment=commitment)
