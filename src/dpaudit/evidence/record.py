"""The record of one audit: what was registered, what came of it, and the key.

With the key anyone can derive the coins again; with the guesses, count them; with the
counts, find the bound. What the record says beyond that is stated and not shown.

Where canaries are real records, key and guesses say who was in the training set. The
redacted form leaves both out, and the picture of the scores. It keeps counts, from
which the bound still follows. A reading that lists guesses one by one cannot be
redacted: whoever can compute the scores learns from their order whose coin each was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, final

from dpaudit import _canonical
from dpaudit._codec import Document, decoded_fields
from dpaudit.errors import InvalidInputError
from dpaudit.evidence.files import ScoreFiles
from dpaudit.evidence.registration import Registration
from dpaudit.game.coins import Key
from dpaudit.game.result import Result
from dpaudit.game.transcript import Transcript

__all__ = ["Evidence", "Guesses"]

Guesses: TypeAlias = Transcript | ScoreFiles

_COLUMNS = ("index", "guess", "truth", "stake", "turn", "uniforms")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence(Document):
    """Everything that is handed to someone who shall check an audit.

    Attributes:
        registration: What was published before the run.
        key: The key, revealed; None if redacted, or if there never was one.
        guesses: Every guess, or the names of the files that hold the scores; None if
            redacted, or if only tallies were kept.
        result: What the audit showed.
        versions: The software it ran with.
        redacted: Whether key and guesses were left out on purpose.
    """

    registration: Registration
    key: Key | None
    guesses: Guesses | None
    result: Result
    versions: Mapping[str, str]
    redacted: bool = False

    form = "dpaudit.evidence.1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", _checked_versions(self.versions))
        if not isinstance(self.redacted, bool):
            raise InvalidInputError(
                f"redacted must be true or false, got redacted={self.redacted!r}"
            )
        committed = self.registration.commitment is not None
        if self.redacted:
            self._check_redacted()
        elif committed and self.key is None:
            raise InvalidInputError(
                "the key is missing: without it nobody can check the coins; evidence "
                "that keeps it back is made by redact()"
            )
        if self.key is not None and not committed:
            raise InvalidInputError(
                "there is a key, but the registration holds no commitment to it"
            )
        kept = self.result.transcript
        same = self.guesses is kept or self.guesses == kept
        if kept is not None and not self.redacted and not same:
            raise InvalidInputError("guesses must be the transcript of the result")

    def _check_redacted(self) -> None:
        kept = self.result.transcript
        if (
            self.key is not None
            or self.guesses is not None
            or (kept is not None and len(kept.index) + len(kept.uniforms))
            or self.result.scores is not None
        ):
            raise InvalidInputError(
                "redacted evidence holds no key, no guesses and no scores"
            )
        if not self.result.reading.tally:
            raise _telling(self.result.reading)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evidence) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def redact(self) -> Self:
        """Return the same without anything that says who was in the training set.

        Counts stay. Where nearly every guess was right, or a class has few guesses,
        they alone tell someone who can compute the scores much about the coins: think
        before you publish. Nobody can check the counts of it any more: verify first,
        as ``dpaudit evidence --redact`` does.

        Raises:
            InvalidInputError: The rules' reading lists guesses one by one.
        """
        if not self.result.reading.tally:
            raise _telling(self.result.reading)
        training = self.result.training
        if training is not None:
            emptied = _emptied(training.transcript)
            training = replace(training, transcript=emptied)
        result = replace(self.result, scores=None, training=training)
        return replace(self, key=None, guesses=None, result=result, redacted=True)

    def to_plain(self) -> dict[str, Any]:
        """Return it as parsed JSON."""
        plain = super(Evidence, self).to_plain()
        if self.result.transcript is not None:
            plain["guesses"] = None  # the result holds them; once is enough
        return plain

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the evidence that a canonical JSON document holds.

        Nothing in it is re-derived: ``dpaudit.evidence.verify`` does that.
        """
        return cls.of_plain(_canonical.canonical(text))

    @classmethod
    def of_plain(cls, plain: object) -> Self:
        """Return the evidence that parsed JSON holds."""
        values = _canonical.document(plain, cls.form)
        held = decoded_fields(cls, values, cls.form)
        kept = held["result"].transcript
        if kept is not None and held["guesses"] is not None:
            raise InvalidInputError(
                "guesses must be null, as the result holds the transcript"
            )
        if kept is not None and not held["redacted"]:
            held["guesses"] = kept
        return cls(**held)


def _checked_versions(versions: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(versions, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str)
        for name, value in versions.items()
    ):
        raise InvalidInputError(
            f"versions must map names to versions, got versions={versions!r}"
        )
    return dict(versions)


def _telling(reading: object) -> InvalidInputError:
    return InvalidInputError(
        f"{type(reading).__name__} lists guesses one by one, and whoever can compute "
        "the scores learns from their order who was in the training set; keep this "
        "evidence to yourself, or audit real records by OneRun(guesses=...)"
    )


def _emptied(transcript: Transcript) -> Transcript:
    columns = {name: getattr(transcript, name)[:0] for name in _COLUMNS}
    return replace(transcript, **columns)
