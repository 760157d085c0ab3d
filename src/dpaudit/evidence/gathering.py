"""Put the parts of one audit together as evidence; refuse parts of two audits."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from dpaudit import _validate
from dpaudit.errors import DpAuditError, InvalidInputError
from dpaudit.evidence.derivation import check_runs, scored_again
from dpaudit.evidence.files import ScoreFiles, read_score_files
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.registration import Registration
from dpaudit.game.coins import Key
from dpaudit.game.result import Result
from dpaudit.game.transcript import Transcript

__all__ = ["evidence_of"]

# Packages that can affect results, by the module whose import shows their use.
_PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "torch": "torch",
    "opacus": "opacus",
    "jax": "jax",
    "jax_privacy": "jax-privacy",
    "pfl": "pfl",
    "dp_accounting": "dp-accounting",
}


def evidence_of(
    result: Result,
    *,
    key: Key | None,
    transcript: Transcript | None = None,
    files: ScoreFiles | None = None,
) -> Evidence:
    """Return the evidence for a result.

    Args:
        result: What the audit returned.
        key: The key of its coins; None if they did not come from one.
        transcript: Every guess, from ``play_one_run``, ``play_adaptive`` or a referee.
            The result of a training run has its own.
        files: The files that hold the scores, for ``audit_scores``. They are read
            once more: ties must have been broken without a ``tie_rng``.

    Raises:
        InvalidInputError: The parts are not of one audit.
        InvalidRunError: The result has a bound that its design does not permit.

    Example:
        >>> from dpaudit import OneRun, PureDP
        >>> from dpaudit.game import Referee
        >>> from dpaudit.game.design import Design
        >>> from dpaudit.game.result import conclude
        >>> rules, claim = OneRun(guesses=2), PureDP(epsilon=1.0)
        >>> design = Design(canaries=10, rules=rules, claim=claim)
        >>> key = Key(bytes(32))
        >>> referee = Referee(design, key)
        >>> _ = referee.submit(index=[0, 3], guess=[1, -1])
        >>> transcript = referee.close()
        >>> result = conclude(transcript, commitment=referee.commitment)
        >>> evidence = evidence_of(result, key=key, transcript=transcript)
        >>> Evidence.from_json(evidence.to_json()) == evidence
        True
    """
    _validate.kind("result", result, Result)
    kept = result.transcript
    if files is not None and (transcript or kept) is not None:
        raise InvalidInputError(
            "the guesses are either in a transcript or in files of scores; pass one"
        )
    guesses = transcript if kept is None else kept
    if kept is not None and transcript not in (None, kept):
        raise InvalidInputError("transcript is not that of the result; leave it out")
    if (result.commitment is None) != (key is None) or (
        key is not None
        and result.commitment is not None
        and not result.commitment.holds_for(key, result.design)
    ):
        raise InvalidInputError(
            "key is not the one that the result's commitment was made with"
        )
    if guesses is not None and (
        guesses.design != result.design
        or guesses.reading().to_json() != result.reading.to_json()
    ):
        raise InvalidInputError("transcript is of another game than the result")
    check_runs(result, result.design)
    if files is not None and files.paths:
        _check_files(files, result, key)
    return Evidence(
        registration=Registration(design=result.design, commitment=result.commitment),
        key=key,
        guesses=files if guesses is None else guesses,
        result=result,
        versions=_versions(),
    )


def _check_files(files: ScoreFiles, audit: Result, key: Key | None) -> None:
    """Refuse files from which nobody could recompute the result."""
    advice = (
        "if some scores are equal, leave out tie_rng, so that others come to the same "
        "order"
    )
    try:
        table = read_score_files(files)
        reading, _, _ = scored_again(table, files, design=audit.design, key=key)
    except DpAuditError as error:
        raise InvalidInputError(
            f"the files do not give the result: {error}; {advice}"
        ) from error
    if reading.to_json() != audit.reading.to_json():
        raise InvalidInputError(
            f"the files give another tally than the result has; {advice}"
        )


def _versions() -> dict[str, str]:
    """Return the versions of Python, dpaudit and the packages in use."""
    versions = {"python": platform.python_version()}
    used = [name for module, name in _PACKAGES.items() if module in sys.modules]
    for name in ("dpaudit", *used):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    return versions
