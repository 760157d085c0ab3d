"""Evidence that is kept from run to run, so that small faults are found over nights.

Wealth that was won against a claim (``betting.py``) stays valid in later runs: the null
hypothesis is that every version of the function satisfies the claim. A folder holds it
for one named test, one file for each *epoch*, with the latest outputs that guessers are
learned from. Wealth, calls and outputs go on from one run to the next.

A new epoch begins with wealth 1 if claim, function or inputs change, if evidence is
reset after a fix, and if the file of the last epoch is missing, damaged or was edited.
Epoch k has the level ``alpha 6 / (pi k)^2``. These add up to alpha, so a true claim is
ever refuted with probability at most alpha, in all epochs together. Only if the whole
folder is lost, and with it the number of the epoch, does that no longer hold; the first
run in an empty folder warns of it.

The files are JSON. Outputs in them are those of the function under test, on the inputs
of the test.
"""

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import log, pi
from pathlib import Path
from typing import Any, Self, final

import numpy as np

from dpaudit import _canonical, _files
from dpaudit._codec import decode, encode
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.testing.betting import Bettor, SeenEvent
from dpaudit.testing.features import Bits, FeatureTable

__all__ = ["Epoch", "Nightly", "binding_of", "epochs", "reset"]

_FORM = "dpaudit.nightly.1"
_FILE = re.compile(r"epoch-(\d{4,})\.json")
_LATEST = "latest-epoch"  # a file with its number, in case that its evidence is lost
_MOST_ROWS = 5000  # outputs that are kept for each pair,
_MOST_VALUES = 100_000  # and places of them,
_PAIRS_WITH_OUTPUTS = 4  # for the pairs with the most evidence
_ARRAYS = ("whole", "kinds", "numbers", "texts")
_FIRST = "first run"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A time in which evidence is collected against one claim.

    Attributes:
        number: From 1.
        alpha: The level of the epoch.
        total_alpha: The level of all epochs together.
        why: Why it began.
        runs: Runs in it, this one included.
        calls: Calls in them.
        log_e_value: The log of the e-value so far.
        refuted: Whether the claim was refuted in it.
        earlier: The epochs before.
    """

    number: int
    alpha: float
    total_alpha: float
    why: str
    runs: int = 0
    calls: int = 0
    log_e_value: float = 0.0
    refuted: bool = False
    earlier: tuple["Epoch", ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """Return what the epoch is, and what happened in earlier ones."""
        times = f"{self.runs} run" + "s" * (self.runs != 1)
        found = [
            f"Evidence of {times} and {self.calls} calls in epoch {self.number}, at "
            f"level {self.alpha:.3g} of {self.total_alpha:g} for all epochs."
        ]
        if self.number > 1:
            found.append(f"It began because {self.why}.")
        past = [str(each.number) for each in self.earlier if each.refuted]
        if past:
            plural = "s" * (len(past) > 1)
            found.append(f"The claim was refuted in epoch{plural} {', '.join(past)}.")
        if self.number == 1 and self.runs <= 1:
            found.append(
                "No earlier state was found. If there was one, the false-positive rate "
                "over its lifetime is no longer bounded."
            )
        return tuple(found)


def binding_of(
    function: Callable[..., object], claim: Guarantee, inputs: Sequence[str]
) -> dict[str, Any]:
    """Return what evidence is bound to: a change of it begins a new epoch."""
    inner = getattr(function, "func", function)  # of a functools.partial
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    listed = _canonical.text(list(inputs))
    return {
        "function": f"{getattr(inner, '__module__', '')}.{name}",
        "claim": encode(claim),
        "inputs": hashlib.sha256(listed.encode()).hexdigest(),
    }


@final
class Nightly:
    """The evidence of one test, kept in a folder.

    Attributes:
        folder: The folder.
        epoch: The epoch, with what was collected in it.
    """

    def __init__(
        self, folder: Path, *, binding: dict[str, Any], epoch: Epoch, pairs: list[Any]
    ) -> None:
        self.folder, self.epoch = folder, epoch
        self._binding, self._pairs = binding, {pair["label"]: pair for pair in pairs}

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path, *, binding: dict[str, Any], alpha: float
    ) -> Iterator[Self]:
        """Yield the evidence in a folder, which no other process can open meanwhile.

        Two that go on from the same evidence would have two tries.
        """
        if folder.exists() and not folder.is_dir():
            raise InvalidInputError(f"state must be a folder, and {folder} is a file")
        with _locked(folder):
            yield cls._read(folder, binding=binding, alpha=alpha)

    @classmethod
    def _read(cls, folder: Path, *, binding: dict[str, Any], alpha: float) -> Self:
        """Return the evidence in a folder, in a new epoch if it cannot go on."""
        known = epochs(folder)
        plain, why = _last(folder, binding, alpha)
        if plain is not None:
            current = replace(known[-1], earlier=tuple(known[:-1]))
            return cls(folder, binding=binding, epoch=current, pairs=plain["pairs"])
        number = max([0, *_numbers(folder)]) + 1
        epoch = Epoch(
            number=number,
            alpha=_level(alpha, number),
            total_alpha=alpha,
            why=why,
            earlier=tuple(known),
        )
        return cls(folder, binding=binding, epoch=epoch, pairs=[])

    def restore(self, bettors: Mapping[str, Bettor]) -> None:
        """Let bettors go on from the evidence that was kept."""
        for label, pair in self._pairs.items():
            rows, bits = _read_outputs(pair["outputs"])
            seen = pair["event"]
            bettors[label].continue_from(
                rows,
                bits,
                seen=None if seen is None else decode(SeenEvent, seen, "event"),
                calls=pair["calls"],
                log_wealth=pair["log_e_value"],
            )

    def key_of_run(self, key: Key) -> Key:
        """Return the key of this run: coins that come again would count twice."""
        name = f"nightly {self.epoch.number} {self.epoch.runs} {self.epoch.calls}"
        return Key(key.stream(name, 0, 32))

    def keep(self, bettors: Mapping[str, Bettor], *, level: float) -> None:
        """Write the evidence, as a whole file."""
        logs = [bettor.log_wealth for bettor in bettors.values()]
        value = float(np.logaddexp.reduce(logs)) - log(len(logs))
        self.epoch = replace(
            self.epoch,
            runs=self.epoch.runs + 1,
            calls=sum(bettor.calls for bettor in bettors.values()),
            log_e_value=value,
            refuted=self.epoch.refuted or value >= -log(level),
        )
        strongest = sorted(bettors, key=lambda label: -bettors[label].log_wealth)
        kept = strongest[:_PAIRS_WITH_OUTPUTS]
        pairs = [
            {
                "label": label,
                "calls": bettor.calls,
                "log_e_value": bettor.log_wealth,
                "event": None if bettor.seen is None else encode(bettor.seen),
                "outputs": _outputs(bettor) if label in kept else None,
            }
            for label, bettor in bettors.items()
        ]
        _write(self.folder, self.epoch, self._binding, pairs)


def reset(folder: Path, *, why: str) -> Epoch:
    """Begin a new epoch, after a fix, and return it.

    Raises:
        InvalidInputError: No evidence is there.
    """
    known = epochs(folder)
    if not known:
        raise InvalidInputError(f"there is no evidence in {folder}; nothing to reset")
    last = known[-1]
    number = max(_numbers(folder)) + 1
    epoch = Epoch(
        number=number,
        alpha=_level(last.total_alpha, number),
        total_alpha=last.total_alpha,
        why=why,
        earlier=tuple(known),
    )
    plain = _read(_path(folder, last.number))
    assert plain is not None  # it was among the epochs
    _write(folder, epoch, plain["binding"], [])
    return epoch


def epochs(folder: Path) -> list[Epoch]:
    """Return the epochs of a folder whose files are as they were written."""
    found = [_read(_path(folder, number)) for number in sorted({*_numbers(folder)})]
    return [_epoch(plain) for plain in found if plain is not None]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder; the lock ends with the process that holds it."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:  # on Windows
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidInputError(
                f"another process uses the evidence in {folder}; two that go on from "
                "it would have two tries, so run one after the other"
            ) from error
        yield
    finally:
        os.close(held)


def _level(alpha: float, number: int) -> float:
    """Return the level of an epoch; the levels of all add up to alpha."""
    return alpha * 6 / (pi * number) ** 2


def _last(
    folder: Path, binding: dict[str, Any], alpha: float
) -> tuple[dict[str, Any] | None, str]:
    """Return the document of the last epoch if it goes on, or why it does not."""
    numbers = _numbers(folder)
    if not numbers:
        return None, _FIRST
    plain = _read(_path(folder, max(numbers)))
    if plain is None:
        return None, "the file of the last one is missing, damaged or was edited"
    for name, value in binding.items():
        if plain["binding"].get(name) != value:
            return None, f"the {name} changed"
    if plain["total_alpha"] != alpha:
        return None, "the significance level changed"
    return plain, ""


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    names = (_FILE.fullmatch(path.name) for path in folder.iterdir())
    found = [int(name[1]) for name in names if name]
    with suppress(OSError, ValueError):
        found.append(int((folder / _LATEST).read_text("ascii")))
    return found


def _path(folder: Path, number: int) -> Path:
    return folder / f"epoch-{number:04}.json"


def _write(
    folder: Path, epoch: Epoch, binding: dict[str, Any], pairs: list[dict[str, Any]]
) -> None:
    plain: dict[str, Any] = {
        "format": _FORM,
        "binding": binding,
        "number": epoch.number,
        "alpha": epoch.alpha,
        "total_alpha": epoch.total_alpha,
        "why": epoch.why,
        "runs": epoch.runs,
        "calls": epoch.calls,
        "log_e_value": epoch.log_e_value,
        "refuted": epoch.refuted,
        "pairs": pairs,
    }
    plain["sha256"] = _digest(plain)
    folder.mkdir(parents=True, exist_ok=True)
    _files.write(folder / _LATEST, f"{epoch.number}\n")
    _files.write(_path(folder, epoch.number), _canonical.text(plain) + "\n")


def _digest(plain: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document, against edits by mistake."""
    rest = {name: value for name, value in plain.items() if name != "sha256"}
    return hashlib.sha256(_canonical.text(rest).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    """Return a document as it was written; None if it is not."""
    with suppress(OSError, ValueError, InvalidInputError, KeyError, TypeError):
        plain: Any = _canonical.parsed(path.read_text("utf-8"))
        if plain["sha256"] == _digest(plain) and plain["format"] == _FORM:
            return dict(plain)
    return None


def _epoch(plain: Mapping[str, Any]) -> Epoch:
    names = [name for name in Epoch.__dataclass_fields__ if name != "earlier"]
    return Epoch(**{name: plain[name] for name in names})


def _outputs(bettor: Bettor) -> dict[str, Any] | None:
    """Return the latest outputs that are learned from, in a form for JSON."""
    if bettor.rows is None:
        return None
    width = max(1, sum(bettor.rows.widths))
    kept = slice(-min(_MOST_ROWS, max(1, _MOST_VALUES // width)), None)
    rows, bits = bettor.rows.rows(kept), bettor.bits[kept]
    return {
        "bits": _packed(bits.astype(np.int64)),
        "widths": list(rows.widths),
        "usual": rows.usual,
        "own": rows.own,
        "left_out": rows.left_out,
        "through": sorted(rows.through),
        **{name: _packed(getattr(rows, name)) for name in _ARRAYS},
    }


def _packed(values: np.ndarray[Any, Any]) -> str:
    kind = "<f8" if values.dtype.kind == "f" else "<i8"
    data = np.ascontiguousarray(values, kind).tobytes()
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def _read_outputs(plain: Mapping[str, Any] | None) -> tuple[FeatureTable | None, Bits]:
    if plain is None:
        return None, np.zeros(0, np.int64)
    bits = _unpacked(plain["bits"], "<i8")
    shapes = {"numbers": plain["widths"][0], "texts": plain["widths"][1]}
    arrays = {
        name: _unpacked(plain[name], "<f8" if name == "numbers" else "<i8")
        for name in _ARRAYS
    }
    for name, width in shapes.items():
        arrays[name] = arrays[name].reshape(len(bits), width)
    return (
        FeatureTable(
            **arrays,
            usual=plain["usual"],
            own=plain["own"],
            left_out=plain["left_out"],
            through=frozenset(plain["through"]),
        ),
        bits,
    )


def _unpacked(text: str, kind: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind).copy()
