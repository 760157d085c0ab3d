"""One key, one output: a record of what the keys of this process were used for.

The coins come from the key alone, so two outputs made with one key have the same coins.
Judging the first reveals the coins of the second, the two are not independent, and the
better of them is not a test at level alpha. So a key is used for one output.

The following count as one output: an audit that is saved and resumed; one that is
opened again after a failed opening, as no output was seen; a run that is repeated to
the last guess; and another view of the same run, such as the final model of a training
run whose steps another audit observed. Ranks of one run are separate processes.

A process remembers the hash by which a commitment identifies the run, never the key.
This prevents mistakes. A second process knows nothing of the first, which is why
evidence states that nothing shows its key was used only once; ``dpaudit verify`` and
``dpaudit combine`` compare the files they are given. Keys of tests and studies are
fixed, public and reused; ``dpaudit.testing.fixed_key`` marks them as such.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from dpaudit.errors import InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.design import Commitment, Design, ThreatModel
from dpaudit.game.transcript import Transcript

if TYPE_CHECKING:
    from dpaudit.game.result import Result

__all__ = [
    "TrainingRun",
    "judge_once",
    "same_observer",
    "same_output",
    "transcript_digest",
]

_NEW_KEY: Final = "make a new key for every run: Key.generate()"
_MOST: Final = 100_000  # newest keys that are remembered; studies use millions


@final
@dataclass(slots=True)
class _Use:
    """The use of a key by one observer."""

    commitment: str
    run: "TrainingRun | None" = None  # the one that has seen output
    saved: bool = False
    judged: str | None = None  # the digest of what was judged


_USES: dict[tuple[str, bool], _Use] = {}


def judge_once(key: Key, commitment: Commitment, design: Design, digest: str) -> None:
    """Record that an output is judged, and refuse a second output by the same key.

    Args:
        key: The key of the coins.
        commitment: The commitment to key and design.
        design: States the threat model.
        digest: Hash of everything that is judged, such as a ``transcript_digest``.

    Raises:
        InvalidRunError: Another output by this key was judged or seen in this process.
    """
    if key.reusable:
        return
    use = _use(commitment, design)
    if use.judged not in (None, digest) or (use.run and use.judged is None):
        raise InvalidRunError(
            "this key was used for another output in this process: the coins of both "
            f"are the same, and known after the first; {_NEW_KEY}"
        )
    use.judged = digest


def transcript_digest(transcript: Transcript) -> str:
    """Return a hash of a design and of all guesses, in their order."""
    digest = hashlib.sha256(transcript.design.to_json().encode())
    for column in (transcript.index, transcript.guess, transcript.stake):
        digest.update(column.tobytes())
    return digest.hexdigest()


@final
class TrainingRun:
    """One training run under one key, from its opening to its result.

    Args:
        key: The key of the coins; it is not kept.
        commitment: The commitment to key and design.
        design: States the threat model.

    Raises:
        InvalidRunError: The key was used for another run in this process, which cannot
            be continued.
    """

    def __init__(self, key: Key, commitment: Commitment, design: Design) -> None:
        self._commitment, self._design = commitment, design
        self._reusable = key.reusable
        use = _USES.get(_run_and_observer(commitment, design))
        if key.reusable or use is None:
            return
        if use.judged is None and use.saved and use.commitment == commitment.sha256:
            return  # to be resumed; judge() checks that it was
        raise InvalidRunError(
            "this key was used for another run in this process, and a key is used for "
            f"one run; {_NEW_KEY}. To go on with a run after a crash, resume it from "
            "a file that save() wrote, with the same design"
        )

    def seen(self) -> None:
        """Record that output was seen; nothing is refused in the middle of training."""
        if not self._reusable:
            use = _use(self._commitment, self._design)
            use.run = use.run or self

    def saved(self) -> None:
        """Record that the run was saved and can be resumed from a file."""
        if not self._reusable:
            _use(self._commitment, self._design).saved = True

    def resumed(self) -> None:
        """Record that this run resumes the one that was saved."""
        if not self._reusable:
            _use(self._commitment, self._design).run = self

    def judge(self, transcript: Transcript) -> None:
        """Record that the run is judged; refuse it if the key was used for another.

        Raises:
            InvalidRunError: The key was used for another run in this process.
        """
        if self._reusable:
            return
        use = _use(self._commitment, self._design)
        digest = transcript_digest(transcript)
        if use.run not in (None, self) or use.judged not in (None, digest):
            raise InvalidRunError(
                "this key was used for another run in this process, and this audit was "
                "not resumed from it, so that there are two outputs with the same "
                f"coins; {_NEW_KEY}"
            )
        use.judged = digest


def _use(commitment: Commitment, design: Design) -> _Use:
    """Return the record of a key's use; the oldest is forgotten."""
    use = _USES.setdefault(
        _run_and_observer(commitment, design), _Use(commitment.sha256)
    )
    if len(_USES) > _MOST:
        del _USES[next(iter(_USES))]
    return use


def _run_and_observer(commitment: Commitment, design: Design) -> tuple[str, bool]:
    return commitment.run_digest, design.threat_model is ThreatModel.FINAL_MODEL


def same_observer(one: Design, other: Design) -> bool:
    """Return whether both designs observe the run, or both only its final model."""
    last = ThreatModel.FINAL_MODEL
    return (one.threat_model is last) == (other.threat_model is last)


def same_output(one: "Result", other: "Result") -> bool:
    """Return whether two results by one key are consistent with a single output.

    Results for different observers may be of one run; those for one observer must have
    the same design and the same guesses, as far as both contain them.
    """
    if not same_observer(one.design, other.design):
        return True
    if one.commitment != other.commitment:
        return False
    kept = [each.transcript for each in (one, other)]
    held = [each for each in kept if each is not None and len(each.index)]
    return (
        one.reading.to_json() == other.reading.to_json()
        and (len(held) < 2 or held[0] == held[1])
        and (None in (one.scores, other.scores) or one.scores == other.scores)
    )
