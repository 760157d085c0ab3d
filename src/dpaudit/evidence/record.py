"""The record of one audit: the registration, the result, and the key.

With the key anyone can derive the coins again; with the guesses, the counts; with the
counts, the bound. Anything else in the record is stated and cannot be checked.

Where canaries are real records, key and guesses reveal who was in the training set. The
redacted form leaves out both, and the summary of the scores. It keeps the counts, from
which the bound still follows. A reading that lists guesses one by one cannot be
redacted: anyone who can compute the scores learns from their order whose coin each was.
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
    """Everything that a verifier needs to check an audit.

    Attributes:
        registration: What was published before the run.
        key: The key, revealed; None if redacted, or if there never was one.
        guesses: Every guess, or the names of the files that hold the scores; None if
            redacted, or if only tallies were kept.
        result: The result of the audit.
        versions: The versions of the software it ran with.
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
        """Return a copy without key, guesses and scores, which reveal the coins.

        Counts stay. If nearly every guess was correct, or a class has few guesses, the
        counts alone reveal much about the coins to anyone who can compute the scores:
        think before you publish. Nobody can check the counts afterwards: verify first,
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
            plain["guesses"] = None  # the result already holds them
        return plain

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the evidence that a canonical JSON document holds.

        Nothing in it is recomputed: ``dpaudit.evidence.verify`` does that.
        """
        return cls.of_plain(_canonical.canonical(text))

    @classmethod
    def of_plain(cls, plain: object) -> Self:
        """Return the evidence that parsed JSON holds."""
        values = _canonical.document(plain, cls.form)
        fields = decoded_fields(cls, values, cls.form)
        kept = fields["result"].transcript
        if kept is not None and fields["guesses"] is not None:
            raise InvalidInputError(
                "guesses must be null, as the result holds the transcript"
            )
        if kept is not None and not fields["redacted"]:
            fields["guesses"] = kept
        return cls(**fields)


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
