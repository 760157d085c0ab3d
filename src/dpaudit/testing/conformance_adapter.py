"""Check that an adapter audits the training run, and nothing else.

An adapter inserts canaries into a training run and reads their signal from the noisy
sums. It is checked by three short training runs, written once by its author: with the
claimed noise, with a twentieth of it, and with a million times as much.

*Contributions arrive, once.* In a regression of what the guesser saw (over the clipping
norm) on the contributions, the slope is 1, and the residuals vary at least as much as
the noise. *Only included canaries contribute.* *The coins are those of the key*, and
the commitment holds for key and design. *The claimed noise is not refuted*: the p-value
is above a level that valid p-values rarely fall below, and the run is not invalid,
which it is if inserted canaries did not arrive. *A twentieth of the noise is refuted*;
this run also shows the size of arriving canaries far better than the claimed noise
does. *Under overwhelming noise guesses are correct by chance*: the guesser has no other
source. *No file saved by the first training run contains the key or the coins.*

The slope is judged by the normal distribution and the rest by exact tails; together
they refuse a conforming adapter with probability at most ``false_alarm``, as far as
thousands of sums are normal. The slopes that the audits themselves report are not
recomputed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from typing import Protocol, final
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import ConformanceError, InvalidInputError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import ThreatModel
from dpaudit.game.result import Result
from dpaudit.game.text.results import signal_sentence
from dpaudit.game.verdict import Verdict
from dpaudit.stats.binomial import log_tails
from dpaudit.testing.conformance_games import Conformance
from dpaudit.training.audit import per_coordinate

__all__ = ["Adapter", "Trained", "check_adapter"]

_TOO_LITTLE, _DROWNING = 0.05, 1e6  # times the claimed noise
_NEGLIGIBLE_LOG_ODDS = 0.01  # of a correct guess under overwhelming noise
_COINS_SOUGHT = 128  # consecutive coins
_ROUNDING = 1e-6  # of a number of canaries


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """One audited training run: what was inserted, what was observed, and the result.

    Attributes:
        result: What the adapter's audit returned.
        joined: What ``contributions()`` returned: how many included canaries contribute
            at each of the audit's coordinates, in their order; a row for each step.
        seen: What the audit was shown there: the noisy sum over the clipping norm, less
            the real records' part if that is known; of the same shape.
    """

    result: Result
    joined: NDArray[np.float64] | NDArray[np.integer]
    seen: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.joined.shape != self.seen.shape or self.joined.ndim != 2:
            raise InvalidInputError(
                "joined and seen must be two tables of one shape, steps by "
                f"coordinates, got shapes {self.joined.shape} and {self.seen.shape}"
            )


class Adapter(Protocol):
    """A short training run that an adapter audits."""

    def train(self, *, key: Key, noise: float, folder: Path) -> Trained:
        """Train once.

        Args:
            key: The key of the audit's coins.
            noise: The standard deviation of the noise, over the clipping norm.
            folder: Where to save the audit's state during training, if it has any.
        """
        ...


def check_adapter(
    adapter: Adapter,
    *,
    noise: float,
    folder: Path,
    rng: np.random.Generator,
    false_alarm: float = 1e-6,
) -> Conformance:
    """Check an adapter by three short training runs.

    Args:
        adapter: A training run that your adapter audits. Its design should be able to
            refute the claim, as a plan's is.
        noise: The noise with which the design's claim holds.
        folder: An empty folder, for saved states.
        rng: Randomness of the keys.
        false_alarm: The false-positive rate: the probability that a conforming adapter
            is refused.

    Raises:
        ConformanceError: It does not conform; the message explains how.
    """
    _validate.positive("noise", noise)
    _validate.error_level("false_alarm", false_alarm)
    if any(folder.iterdir()):
        raise InvalidInputError(f"folder must be empty, got folder={str(folder)!r}")
    name, each = repr(adapter), false_alarm / 5  # five tests: Boole's inequality

    def train(times: float) -> tuple[Key, Trained]:
        key = Key(rng.bytes(32))
        return key, adapter.train(key=key, noise=times * noise, folder=folder)

    key, correct = train(1.0)
    _check_coins(name, key, correct)
    _check_sums(name, correct, noise, each)
    _check_correct(name, correct, each)
    files = _check_files(name, key, correct, folder)
    _check_drowned(name, train(_DROWNING)[1], each)
    _check_faulty(name, train(_TOO_LITTLE)[1])
    return Conformance(
        subject=name,
        checked=(
            "the coins are those of the key, and only included canaries join",
            "what joins arrives once: the slope is 1, and the noise is no less",
            "the claimed noise is not refuted",
            f"{_TOO_LITTLE:g} times the noise is refuted",
            "in noise that drowns everything, guesses are correct by chance",
            f"neither key nor coins are in the {files} files saved"
            if files
            else "no state was saved",
        ),
    )


def _check_coins(name: str, key: Key, trained: Trained) -> None:
    audit, transcript = trained.result, trained.result.transcript
    design = audit.design
    if transcript is None:
        raise ConformanceError(f"{name}: the result holds no transcript")
    if audit.commitment is None or not audit.commitment.holds_for(key, design):
        raise ConformanceError(
            f"{name}: the commitment does not hold for the key it was given and the "
            "design of the result"
        )
    bits = Coins(key=key, count=design.canaries).bits()
    if not np.array_equal(transcript.truth, 2 * bits[transcript.index].astype(int) - 1):
        raise ConformanceError(f"{name}: the transcript's coins are not the key's")
    most = _included(key, trained)
    if trained.joined.shape[1] != len(most):
        raise ConformanceError(
            f"{name}: {len(most)} coordinates hold canaries, but joined has "
            f"{trained.joined.shape[1]} columns"
        )
    # A sum divided by the clipping norm is a whole number up to rounding.
    joined = trained.joined
    over = np.argwhere((joined > most + _ROUNDING) | (joined < -_ROUNDING))
    if len(over):
        step, where = over[0]
        raise ConformanceError(
            f"{name}: in step {step}, {trained.joined[step, where]} canaries joined at "
            f"coordinate {where}, where the coins include {most[where]}"
        )


def _check_sums(name: str, trained: Trained, noise: float, false_alarm: float) -> None:
    """Check the regression of what was seen on the contributions."""
    x, y = trained.joined.ravel().astype(float), trained.seen.ravel()
    if not np.ptp(x):
        raise ConformanceError(f"{name}: as many canaries join every step everywhere")
    slope, rest = np.polyfit(x, y, 1)
    left = float(np.std(y - slope * x - rest))
    error = left / (float(np.std(x)) * sqrt(len(x)))
    reach = -float(special.ndtri(false_alarm / 2))
    if abs(slope - 1) > reach * error:
        raise ConformanceError(
            f"{name}: a canary that joins raises what the guesser sees by {slope:.3f} "
            f"± {error:.3f} clipping norms, and should by 1: is it clipped, scaled or "
            "averaged on the way?"
        )
    if left < noise * (1 - reach / sqrt(2 * len(x))):
        raise ConformanceError(
            f"{name}: what the guesser sees varies by {left:.3f} clipping norms, less "
            f"than the noise of {noise:g} it was to have: does the audit read it "
            "before all of the noise is added?"
        )


def _check_correct(name: str, trained: Trained, false_alarm: float) -> None:
    """Refuse an invalid run or a refuted claim where the claimed noise was added."""
    result = trained.result
    if result.verdict is Verdict.INVALID_RUN:
        raise ConformanceError(
            f"{name}: the audit of a run with the claimed noise is invalid: "
            f"{result.reason}"
        )
    if trained.result.p_value <= false_alarm:
        raise ConformanceError(
            f"{name}: a run with the claimed noise is refuted, with p = "
            f"{trained.result.p_value:.2g}: does the claim hold with that noise, or "
            "does the audit read before the noise?"
        )


def _check_faulty(name: str, trained: Trained) -> None:
    """Refuse a faulty run that is not refuted, or with canaries of the wrong size."""
    result = trained.result
    known = result.design.threat_model is ThreatModel.KNOWN_RECORDS
    real = " Is the real records' part taken off?" * known
    if not result.refuted:
        raise ConformanceError(
            f"{name}: a training run with {_TOO_LITTLE:g} times the claimed noise is "
            f"not refuted (p = {result.p_value:.2g}"
            f"{'; ' * bool(result.reason)}{result.reason}): do the guesses follow what "
            "was seen, can the design refute the claim at all, or does its claim "
            f"follow the noise of the training?{real}"
        )
    signal = None if result.training is None else result.training.signal
    if signal is not None and signal.off:
        raise ConformanceError(
            f"{name}: in a training run with {_TOO_LITTLE:g} times the claimed noise: "
            f"{signal_sentence(signal)}; are canaries clipped, scaled or averaged "
            f"before the sum?{real}"
        )


def _check_drowned(name: str, trained: Trained, false_alarm: float) -> None:
    transcript = trained.result.transcript
    assert transcript is not None  # _check_coins checked it
    made = transcript.guess != 0
    correct = int((transcript.guess == transcript.truth)[made].sum())
    log_p, _ = log_tails(correct, int(made.sum()), _NEGLIGIBLE_LOG_ODDS)
    if log_p <= log(false_alarm):
        raise ConformanceError(
            f"{name}: with {_DROWNING:g} times the noise {correct} of {made.sum()} "
            "guesses are still correct: the guesser knows the coins from elsewhere, or "
            "what it reads has not all of the noise: does the audit read before the "
            "noise?"
        )


def _check_files(name: str, key: Key, trained: Trained, folder: Path) -> int:
    """Search all saved files for the key and the coins; return how many files."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    sought = dict(_secrets(key, trained))
    for path in files:
        for part, content in _contents(path):
            for what, secret in sought.items():
                if secret in content:
                    raise ConformanceError(f"{name}: {what} in the file {part}")
    return len(files)


def _secrets(key: Key, trained: Trained) -> Iterator[tuple[str, bytes]]:
    yield "the key is", key.secret
    yield "the key is, in hex digits,", key.secret.hex().encode()
    bits = Coins(key=key, count=trained.result.design.canaries).bits()
    for order in ("big", "little"):
        packed = np.packbits(bits[:_COINS_SOUGHT], bitorder=order)
        if len(packed) >= 8:
            yield f"the coins are, packed {order} end first,", packed.tobytes()
    for values in (bits, _included(key, trained)):
        for kind in (np.int8, np.int32, np.int64, np.float32, np.float64):
            plain = values[:_COINS_SOUGHT].astype(kind)
            yield f"the coins are, as {kind.__name__},", plain.tobytes()
            yield (
                f"the coins are, as signs of {kind.__name__},",
                (2 * plain - 1).astype(kind).tobytes(),
            )


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    yield path.name, path.read_bytes()
    if is_zipfile(path):
        with ZipFile(path) as archive:
            for member in archive.namelist():
                yield f"{path.name}/{member}", archive.read(member)


def _included(key: Key, trained: Trained) -> NDArray[np.int64]:
    """Return how many canaries the coins include at each coordinate."""
    design = trained.result.design
    bits = Coins(key=key, count=design.canaries).bits()
    at_each = bits.reshape(-1, per_coordinate(design)).astype(np.int64)
    return np.asarray(at_each.sum(axis=1))
