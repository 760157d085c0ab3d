"""What may come of a hostile input: a valid value, or an error that helps; soon.

An error helps if it is one of ours, fits on a screen, says something that can be
printed (no escape sequence of a terminal), and names the file if there is one.
"""

import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

from fuzz_targets import Target

from dpaudit.errors import DpAuditError

__all__ = ["Flaw", "judged"]

_LONGEST = 4000


@dataclass(frozen=True)
class Flaw:
    """What should not have happened.

    Attributes:
        kind: The same for all inputs that show the same flaw.
        said: What happened.
    """

    kind: str
    said: str


def judged(target: Target, data: bytes, folder: Path) -> tuple[str, Flaw | None]:
    """Return the outcome of one case, and its flaw if it has one."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = target.read(data, folder)
        outcome, flaw = found if isinstance(found, str) else "value", None
    except AssertionError as error:
        outcome, said = "AssertionError", f"{error}"
        flaw = Flaw(f"{said[:60]!r} at {_where(error)}", said[:500])
    except DpAuditError as error:
        outcome = type(error).__name__
        flaw = _unhelpful(target, error, folder)
    except Exception as error:
        outcome = type(error).__name__
        flaw = Flaw(f"{outcome} at {_where(error)}", f"{outcome}: {error}"[:500])
    spent = time.process_time() - start
    if flaw is None and spent > target.seconds:
        flaw = Flaw(f"slow {outcome}", f"{spent:.1f} s for {len(data)} bytes")
    return outcome, flaw


def _unhelpful(target: Target, error: DpAuditError, folder: Path) -> Flaw | None:
    said = str(error)
    if not said.strip():
        return Flaw(f"says nothing at {_where(error)}", "")
    if len(said) > _LONGEST:
        return Flaw(f"long message at {_where(error)}", f"{len(said)}: {said[:200]!r}")
    if not said.replace("\n", "").isprintable():
        return Flaw(f"unprintable message at {_where(error)}", repr(said[:500]))
    if target.names_file and str(folder) not in said:
        return Flaw(f"file not named at {_where(error)}", said[:500])
    return None


def _where(error: BaseException) -> str:
    """Return where in the package an error was raised."""
    places = [
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "dpaudit" in frame.filename
    ]
    return places[-1] if places else "the target itself"
