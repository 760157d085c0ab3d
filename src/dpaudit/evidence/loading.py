"""Load any dpaudit document from a file, by the format that it names."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from dpaudit import _canonical, _validate
from dpaudit.bounds.readings import Reading
from dpaudit.errors import DpAuditError, InvalidInputError
from dpaudit.evidence.envelope import is_sealed, open_envelope
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.registration import Registration
from dpaudit.evidence.verification import Verification
from dpaudit.game.coins import Coins
from dpaudit.game.design import Commitment, Design
from dpaudit.game.result import Result
from dpaudit.game.transcript import Transcript
from dpaudit.tables.tally import ScoreTally
from dpaudit.tables.tally_json import TALLY_FORMAT, tally_from_json

__all__ = ["load"]

Loaded: TypeAlias = (
    Result
    | Design
    | Evidence
    | Registration
    | Commitment
    | Transcript
    | Verification
    | Reading
    | Coins
    | ScoreTally
)

_DOCUMENTS: Final[dict[str, Callable[[str], Loaded]]] = {
    each.form: each.from_json
    for each in (
        Result,
        Design,
        Evidence,
        Registration,
        Commitment,
        Transcript,
        Verification,
        Reading,
        Coins,
    )
} | {TALLY_FORMAT: tally_from_json}
# Output of commands with --json, which is for reading and cannot be loaded.
_PRINTED: Final = {
    "audit": "the result: dpaudit audit ... --save result.json",
    "explanation": "the result that was explained",
    "combination": "the results that were combined",
    "gaps": "nothing: `dpaudit gaps` computes it anew",
    "bound": "nothing: `dpaudit bound` computes it anew",
}


def load(path: str | Path) -> Loaded:
    """Return what a file holds: a result, a design, evidence, a tally, and so on.

    For a plan (``dpaudit plan --json``) it returns the design. Evidence is opened but
    not verified; ``dpaudit.verify`` does that.

    Raises:
        InvalidInputError: It is no dpaudit document; the message names what it is and
            what to load instead.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit import Design, OneRun, PureDP
        >>> claim = PureDP(epsilon=1.0)
        >>> design = Design(canaries=9, rules=OneRun(guesses=3), claim=claim)
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "design.json")
        ...     _ = file.write_text(design.to_json())
        ...     load(file) == design
        True
    """
    _validate.path("path", path)
    path = Path(path)
    if not path.is_file():
        if path.is_dir():
            raise InvalidInputError(f"{path} is a folder; name a file in it")
        raise InvalidInputError(f"there is no file {path}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} is no document but bytes; the state of an audit is read by its "
            "audit.resume(path), a table of scores by dpaudit.audit_scores"
        ) from error
    try:
        return _loaded(text)
    except DpAuditError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def _loaded(text: str) -> Loaded:
    if is_sealed(text):
        return open_envelope(text)[0]
    plain = _canonical.parsed(text)
    form = str(plain.get("format", "")) if isinstance(plain, Mapping) else ""
    if form in _DOCUMENTS:
        return _DOCUMENTS[form](text)
    if form == "dpaudit.plan.1" and "design" in plain:
        return Design.of_plain(plain["design"])
    name = form.removeprefix("dpaudit.").rsplit(".", 1)[0]
    if name in _PRINTED:
        raise InvalidInputError(
            f"this was printed by a command ({form}); load instead {_PRINTED[name]}"
        )
    raise InvalidInputError(
        f"no document that this version knows (format {form!r}); known are "
        f"{', '.join(sorted(_DOCUMENTS))}"
    )
