"""Check that the state after a step depends on records only through the noisy sum.

DP-SGD is private because all that comes after a step's noise depends on records only
through the noisy sum. So the loop's code from there on is run on batches of different
records with the same noisy sum. All that it returns must then be equal, bit for bit:
parameters, the optimizer's state, learning rate, clipping norm, counters.

*Batches.* Of equal shape: half of the records exchanged, one record in every place,
another record in every place, and a mix of these two, so that a mean, a loss or a label
differs in one of them. And one with a record fewer, since the number of sampled records
also depends on the data.

*Other variation.* All batches are run twice. What differs between two runs of the same
batch is not compared, and then nothing is concluded from the rest being equal. With
another noisy sum something must differ: otherwise the wrong function was run.

What is not returned is not checked, nor what happens before the function begins, nor
records that were not among those given.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, repeat
from typing import Any, Final, Protocol, TypeAlias, final

import numpy as np

from dpaudit._progress import progress_note
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import (
    Finding,
    Stage,
    Status,
    fault,
    inspected,
    not_checked,
)
from dpaudit.game.text.findings import sentence
from dpaudit.training.probe.engine import Rows
from dpaudit.training.probe.trees import (
    Tree,
    counted,
    mapped,
    named_leaves,
    parameters,
    rows_of,
)

__all__ = ["Update", "UpdateReport", "UpdateRun", "leaf_digests", "probe_update"]

Update: TypeAlias = Callable[..., Tree]
_Digests: TypeAlias = dict[str, str]

_MAX_NAMED: Final = 4  # differing leaves that a finding names
_FIRST: Final = "first"


class UpdateRun(Protocol):
    """Runs a loop's update on a batch, with one of two noisy sums."""

    def __call__(
        self, batch: Tree, given: Mapping[str, Any], /, *, second: bool
    ) -> Tree:
        """Return the whole state after the update.

        Args:
            batch: Some records.
            given: Further arguments by name: ``keep``, or nothing.
            second: Whether to use the second of two noisy sums.
        """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """Whether the state after a step was the same whatever its records.

    Attributes:
        findings: Faults, and the check of the stage.
    """

    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The faults among the findings."""
        return tuple(each for each in self.findings if each.status is Status.FAULT)

    def __str__(self) -> str:
        return " ".join(
            f"{'Fault found: ' if each.status is Status.FAULT else ''}{sentence(each)}."
            for each in self.findings
        )


@progress_note("comparing the update on other records")
def probe_update(
    run: UpdateRun, batch: Tree, *, function: Update, name: str
) -> UpdateReport:
    """Return whether the state after an update depends on the records of its batch.

    Args:
        run: Runs the update; it is called thirteen times.
        batch: Real records: a tree of arrays, each with one row for each record.
        function: The user's own function; ``keep`` is passed if it takes that.
        name: Its name in the report.
    """
    batches = [*_batches(batch, keeps="keep" in parameters(function))]

    def left(rows: Tree, given: Mapping[str, Any], *, second: bool = False) -> _Digests:
        with _same_random_numbers():
            return leaf_digests(run(rows, given, second=second), name)

    once = {kind: left(rows, given) for kind, rows, given in batches}
    again = {kind: left(rows, given) for kind, rows, given in batches}
    _, *first = batches[0]
    varying = {name for kind in once for name in _differ(once[kind], again[kind])}
    faults = tuple(_faults(once, varying))
    compared = len(once[_FIRST].keys() - varying)
    if varying and not faults:
        return _unseen("interference.update_varies", varying, ran=name)
    if not faults and not _differ(once[_FIRST], left(*first, second=True)):
        return _unseen("interference.update_ignores", set(), ran=name)
    checked = inspected(
        Stage.SIDE_PATHS,
        "interference.update_compared",
        ran=name,
        batches=len(once),
        compared=compared,
    )
    return UpdateReport(findings=(*faults, checked))


def _faults(once: Mapping[str, _Digests], varying: set[str]) -> Iterator[Finding]:
    """Yield a fault for each kind of batch in which further leaves first differ."""
    known = set(varying)
    for kind, values in once.items():
        differ = _differ(once[_FIRST], values) - known
        known |= differ
        if differ:
            yield fault(
                Stage.SIDE_PATHS,
                "interference.held",
                sorted(differ)[:_MAX_NAMED],
                kind=kind,
                more=max(0, len(differ) - _MAX_NAMED),
            )


def _unseen(code: str, names: set[str], *, ran: str) -> UpdateReport:
    why = not_checked(
        Stage.SIDE_PATHS,
        code,
        sorted(names)[:_MAX_NAMED],
        more=max(0, len(names) - _MAX_NAMED),
        ran=ran,
    )
    return UpdateReport(findings=(why,))


def _differ(one: _Digests, other: _Digests) -> set[str]:
    """Return the names of leaves that differ, or that only one has."""
    return {n for n in one.keys() | other.keys() if one.get(n) != other.get(n)}


def _batches(
    batch: Tree, *, keeps: bool
) -> Iterator[tuple[str, Tree, Mapping[str, Any]]]:
    """Yield the kind of each batch, the batch, and its arguments by name."""
    size = counted(batch) // 2
    if size < 2:
        raise InvalidInputError(
            f"comparing batches needs 4 records or more, got {counted(batch)}"
        )
    rows = np.arange(size)
    one, other = np.full(size, 0), np.full(size, size)
    everybody: dict[str, Any] = {"keep": np.ones(size, bool)} if keeps else {}
    yield _FIRST, rows_of(batch, rows), everybody
    exchanged = np.where(rows < size // 2, rows, rows + size)
    yield "exchanged", rows_of(batch, exchanged), everybody
    yield "one", rows_of(batch, one), everybody
    yield "other", rows_of(batch, other), everybody
    if len([*named_leaves(batch)]) > 1:
        yield "mixed", _put_together(batch, one, other), everybody
    if keeps:
        yield "fewer", rows_of(batch, rows), {"keep": rows < size - 1}
    else:
        yield "fewer", rows_of(batch, rows[:-1]), everybody


def _put_together(batch: Tree, one: Rows, other: Rows) -> Tree:
    """Return a batch with the first leaf of some records and the rest of others."""
    rows = chain([one], repeat(other))
    return mapped(batch, lambda leaf: leaf[next(rows)])


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Seed numpy's and Python's global generators; restore their states afterwards."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (user code may draw from it)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def leaf_digests(tree: Tree, name: str) -> dict[str, str]:
    """Return a digest of each leaf's type, shape and bits, by the leaf's name.

    Args:
        tree: A tree of arrays and numbers, of any library.
        name: The function that returned it, for errors.

    Example:
        >>> one = leaf_digests({"rate": 0.1, "weights": np.zeros(3)}, "update")
        >>> other = leaf_digests({"rate": 0.2, "weights": np.zeros(3)}, "update")
        >>> [leaf for leaf in one if one[leaf] != other[leaf]]
        ['rate']
    """
    digests = {
        leaf: _digest(value, leaf, name)
        for leaf, value in named_leaves(tree, alone="what it returns")
    }
    if not digests:
        raise InvalidInputError(
            f"{name} must return what the step leaves behind, got {tree!r:.60}"
        )
    return digests


def _digest(value: Any, leaf: str, name: str) -> str:  # noqa: ANN401
    plain = value.detach().cpu() if hasattr(value, "detach") else value
    if str(getattr(plain, "dtype", "")) == "torch.bfloat16":  # which numpy lacks
        plain = plain.view(sys.modules["torch"].int16)
    try:
        array = np.asarray(plain)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{name} must return arrays and numbers that numpy can read; {leaf!r} is "
            f"not one: {error}"
        ) from error
    if array.dtype.hasobject:
        raise InvalidInputError(
            f"{name} must return arrays and numbers, or dicts, lists and tuples of "
            f"these; {leaf!r} is {value!r:.60}"
        )
    found = sha256(f"{array.dtype.str} {array.shape} ".encode())
    found.update(np.ascontiguousarray(array).data)  # large arrays are not copied
    return found.hexdigest()
