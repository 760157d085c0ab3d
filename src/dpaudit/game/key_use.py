"""One key, one output: what the keys of this process were used for.

The coins come from the key alone, so two outputs made with one key have the same coins.
Whoever has judged the first knows the coins of the second, the two are not independent,
and the better of them is no test at level alpha. So a key is used for one output.

These are one output: an audit that is saved and resumed; one that is opened again after
an opening that failed, as nothing was seen; a run that is repeated to the last guess;
and what somebody else sees of the same run, such as the final model of a training run
whose steps another audit watched. Ranks of one run are processes of their own.

A process remembers the hash by which a commitment names the run, and never the key. It
prevents mistakes. A second process knows nothing of the first, which is why evidence
says that nothing shows that its key was used once; ``dpaudit verify`` and ``dpaudit
combine`` compare what they are given. Keys of tests and studies are fixed, known to
everybody, and used again and again; ``dpaudit.testing.fixed_key`` says so.
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
_MOST: Final = 100_000  # keys that are remembered, the newest; studies use millions


@final
@dataclass(slots=True)
class _Use:
    """What a key was used for by one observer."""

    commitment: str
    run: "TrainingRun | None" = None  # that has seen output
    saved: bool = False
    judged: str | None = None  # the digest of what was judged


_USES: dict[tuple[str, bool], _Use] = {}


def judge_once(key: Key, commitment: Commitment, design: Design, digest: str) -> None:
    """Refuse to judge a second output by one key.

    Args:
        key: Of the coins.
        commitment: To the key and the design.
        design: Says who observes.
        digest: Of all that is judged, such as a ``transcript_digest``.

    Raises:
        InvalidRunError: In this process another output by this key was judged, or seen.
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
    found = hashlib.sha256(transcript.design.to_json().encode())
    for column in (transcript.index, transcript.guess, transcript.stake):
        found.update(column.tobytes())
    return found.hexdigest()


@final
class TrainingRun:
    """One training run under one key, from its opening to its result.

    Args:
        key: Of the coins; it is not kept.
        commitment: To the key and the design.
        design: Says who observes.

    Raises:
        InvalidRunError: In this process the key was used for another run, which cannot
            be gone on with.
    """

    def __init__(self, key: Key, commitment: Commitment, design: Design) -> None:
        self._commitment, self._design = commitment, design
        self._reusable = key.reusable
        use = _USES.get(_place(commitment, design))
        if key.reusable or use is None:
            return
        if use.judged is None and use.saved and use.commitment == commitment.sha256:
            return  # to be resumed; finish sees whether it was
        raise InvalidRunError(
            "this key was used for another run in this process, and a key is used for "
            f"one run; {_NEW_KEY}. To go on with a run after a crash, resume it from "
            "a file that save() wrote, with the same design"
        )

    def seen(self) -> None:
        """Say that output was seen; nothing is refused in the middle of a training."""
        if not self._reusable:
            use = _use(self._commitment, self._design)
            use.run = use.run or self

    def saved(self) -> None:
        """Say that the run can be gone on with from a file."""
        if not self._reusable:
            _use(self._commitment, self._design).saved = True

    def resumed(self) -> None:
        """Say that this is the run which was saved."""
        if not self._reusable:
            _use(self._commitment, self._design).run = self

    def judge(self, transcript: Transcript) -> None:
        """Refuse to judge a run if the key was used for another.

        Raises:
            InvalidRunError: It was.
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
    """Return what is known of a key; the oldest is forgotten."""
    use = _USES.setdefault(_place(commitment, design), _Use(commitment.sha256))
    if len(_USES) > _MOST:
        del _USES[next(iter(_USES))]
    return use


def _place(commitment: Commitment, design: Design) -> tuple[str, bool]:
    return commitment.run_digest, design.threat_model is ThreatModel.FINAL_MODEL


def same_observer(one: Design, other: Design) -> bool:
    """Return whether both see a run itself, or both its final model only."""
    last = ThreatModel.FINAL_MODEL
    return (one.threat_model is last) == (other.threat_model is last)


def same_output(one: "Result", other: "Result") -> bool:
    """Return whether two results by one key are shown to be of one output.

    Results for different observers may be of one run; those for one observer must have
    the same design and the same guesses, as far as both hold them.
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
