"""Choose the places of a wide output to guess from, and name what is not inspected.

Guessers use a few hundred places one by one. From wider outputs the most informative
places are chosen: over all calls with known coins, each place is rated by the distance
between the two coins' outputs there, in standard deviations. The largest of five
distances counts: of the number (on a compressed scale), of its square, of the fineness
of its grid, and of two hashes of its exact value, equal for equal values. At a place
with two values, one for each coin, the hashes differ as clearly as the coins do. Sum,
least and largest are taken over all places, chosen or not.

Places are chosen by calls that are learned from, never by those of the audit, so its
bound holds as for any guesser. If a guesser is evaluated on held-out calls, the places
are chosen without these; otherwise places that differ by chance would resemble a leak.

Parts that nothing can be learned from are named: places beyond those that are read,
what an object's ``repr`` does not show, and texts that are rarely repeated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.testing.features import PLACES, WIDEST, Bits, FeatureTable

__all__ = ["SelectedFeatures", "most_informative", "narrow", "unseen"]

_VALUES_AT_ONCE = 1_000_000  # values that are compared at once
_PLACES_ALWAYS_KEPT = 16  # if outputs usually have no more numbers, all are kept
_MOST_SEEN_ONCE = 0.25  # largest share of unique texts at a place that can be learned
# Odd, and without pattern: a product's high bits depend on all bits of the input.
_HASH_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelectedFeatures:
    """The places of an output that are guessed from.

    Attributes:
        numbers: The indices of its numbers, in order; None for all.
        texts: The indices of its texts.
    """

    numbers: NDArray[np.int64] | None
    texts: NDArray[np.int64] | None


def most_informative(
    table: FeatureTable, bits: Bits, rows: NDArray[np.int64]
) -> SelectedFeatures:
    """Return the places that differ most between the coins of some calls.

    Example:
        >>> from dpaudit.testing.features import tabulate
        >>> bits = np.arange(60) % 2
        >>> outputs = np.random.default_rng(0).normal(size=(60, 3000))
        >>> outputs[:, 2718] = bits
        >>> places = most_informative(tabulate(list(outputs)), bits, np.arange(60))
        >>> len(places.numbers), 2718 in places.numbers
        (512, True)
    """
    first = range(table.usual if table.usual <= _PLACES_ALWAYS_KEPT else 0)
    return SelectedFeatures(
        numbers=_chosen(table.numbers, bits, rows, first),
        texts=_chosen(table.texts, bits, rows, range(0)),
    )


def narrow(table: FeatureTable, places: SelectedFeatures) -> FeatureTable:
    """Return the table with these places only."""
    if places.numbers is None and places.texts is None:
        return table
    numbers, texts = places.numbers, places.texts
    return replace(
        table,
        numbers=table.numbers if numbers is None else table.numbers[:, numbers],
        texts=table.texts if texts is None else table.texts[:, texts],
        own=table.own if texts is None else int(np.sum(texts < table.own)),
        order=table.ordered(),
    )


def _chosen(
    columns: NDArray[np.generic], bits: Bits, rows: NDArray[np.int64], first: range
) -> NDArray[np.int64] | None:
    """Return the columns that differ most, and the first; None if not wide."""
    n, width = columns.shape
    if width <= WIDEST:
        return None
    size = max(1, _VALUES_AT_ONCE // max(n, 1))
    signs = 2.0 * bits[rows] - 1.0
    apart = np.concatenate(
        [_distances(columns[rows, i : i + size], signs) for i in range(0, width, size)]
    )
    apart[list(first)] = np.inf
    return np.sort(np.argsort(-apart, kind="stable")[:WIDEST])


def _distances(
    columns: NDArray[np.generic], signs: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Return the largest distance between the coins' outputs in each column."""
    centred = signs - signs.mean()
    largest = np.zeros(columns.shape[1])
    for shown in _shown(np.ascontiguousarray(columns)):
        even = shown - shown.mean(axis=0)
        size = np.sqrt(np.einsum("ij,ij->j", even, even))
        apart = np.abs(centred @ even)
        np.maximum(largest, apart / np.where(size > 0, size, np.inf), out=largest)
    return largest


def _shown(columns: NDArray[np.generic]) -> Iterator[NDArray[np.float64]]:
    """Yield the features that are compared of numbers, or of codes of texts."""
    codes = columns.view(np.uint64)
    for odd in _HASH_FACTORS:
        yield (codes * np.uint64(odd) >> np.uint64(40)).astype(np.float64)
    if columns.dtype != np.float64:
        return
    numbers = np.arcsinh(np.nan_to_num(columns, posinf=1e300, neginf=-1e300))
    yield numbers
    yield (numbers - numbers.mean(axis=0)) ** 2
    yield _grid(columns.view(np.int64))


def _grid(codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return approximately the binary logarithm of the lowest set bit of floats."""
    digits = codes & ((1 << 52) - 1) | (1 << 52)
    exponent = (codes >> 52) & 2047
    lowest = np.log2((digits & -digits).astype(np.float64))
    return np.asarray(exponent + lowest)


def unseen(*tables: FeatureTable) -> tuple[str, ...]:
    """Return the parts of outputs that were not inspected, each in a few words.

    Example:
        >>> from dpaudit.testing.features import tabulate
        >>> unseen(tabulate(["yes", "no"] * 9))
        ()
        >>> unseen(tabulate([f"{i} says yes" for i in range(9)]))
        ('what stands inside texts that hardly ever come again, at 1 place',)
    """
    beyond = max(table.left_out for table in tables)
    through = frozenset().union(*(table.through for table in tables))
    unread = max(_unread(table) for table in tables)
    return (
        *(
            [f"{beyond} places of the output beyond the first {PLACES}"]
            if beyond
            else []
        ),
        *(f"what the repr of {name} does not show" for name in sorted(through)),
        *(
            [
                "what stands inside texts that hardly ever come again, at "
                f"{unread} place{'s' * (unread > 1)}"
            ]
            if unread
            else []
        ),
    )


def _unread(table: FeatureTable) -> int:
    """Return at how many places too many texts are seen only once."""
    codes = np.sort(table.texts[:, : table.own], axis=0)
    if not codes.size:
        return 0
    new = np.ones((len(codes) + 1, codes.shape[1]), bool)
    new[1:-1] = codes[1:] != codes[:-1]
    once = new[1:] & new[:-1] & (codes != 0)
    return int(np.sum(once.mean(axis=0) > _MOST_SEEN_ONCE))
