"""One round of an audit: the answers of canary clients, and their contributions.

An included canary whose turn it is moves one coordinate by a multiple of the clipping
norm. All others that participate move theirs by a negligible amount, so that the number
of answers, their weights and the recipients of messages never depend on a coin. Zero is
not possible: Flower divides by the norm of an update. The negligible amounts are
accounted for exactly.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.dpsgd.participation import Participation
from dpaudit.training.flower.setup import Stated
from dpaudit.training.layout import Arrays, Layout

__all__ = ["Answer", "Round", "in_turn", "open_round", "taking_part"]

_NEGLIGIBLE: Final = 1e-6  # of the clipping norm


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one canary client: the model that it was sent, with one new entry.

    Attributes:
        canary: Its number.
        array: The index of the array.
        place: The index in that array, flattened.
        value: The new value.
        cut: Whether its update is above the clipping norm.
    """

    canary: int
    array: int
    place: int
    value: float
    cut: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """A round that has begun. Secret: it reveals the coins.

    Attributes:
        stated: The strategy's parameters when it began.
        sent: The model at the coordinates, as it was sent.
        answers: Of the canaries that participate.
        put: The contribution of each of them to the sum, over the clipping norm.
        coordinate: The coordinate of each.
    """

    stated: Stated
    sent: NDArray[np.float64]
    answers: Sequence[Answer]
    put: NDArray[np.float64]
    coordinate: NDArray[np.int64]

    def joined(self, silent: Collection[int] = ()) -> NDArray[np.float64]:
        """Return the contribution of canaries at each coordinate.

        Args:
            silent: Canaries that did not answer.
        """
        heard = np.array([answer.canary not in silent for answer in self.answers], bool)
        return np.bincount(
            self.coordinate, self.put * heard, minlength=len(self.sent)
        ).astype(np.float64)


def in_turn(
    participation: Participation | None,
    step: int,
    *,
    coordinates: int,
    per_coordinate: int,
) -> NDArray[np.bool_]:
    """Return for each canary whether it is scheduled for a round, whatever its coin.

    Example:
        >>> twice = Participation(every=2, cohorts=2)
        >>> in_turn(twice, 1, coordinates=3, per_coordinate=1)
        array([False,  True, False])
    """
    participation = participation or Participation()
    mine = participation.cohort_of(coordinates) == participation.cohort_at(step)
    mine &= participation.participates(step)
    return np.repeat(mine, per_coordinate)


def taking_part(mine: NDArray[np.bool_], clients: int) -> NDArray[np.int64]:
    """Return the canaries whose turn it is, and others up to a number, in order.

    The others contribute nothing; they make all rounds have equally many clients.

    Example:
        >>> taking_part(np.array([False, True, False]), 2)
        array([0, 1])
    """
    others = np.flatnonzero(~mine)[: max(0, clients - int(mine.sum()))]
    return np.sort(np.concatenate([np.flatnonzero(mine), others]))


def open_round(
    arrays: Arrays,
    layout: Layout,
    stated: Stated,
    *,
    canaries: NDArray[np.int64],
    inside: NDArray[np.bool_],
    per_coordinate: int,
    norm: float,
    cut: bool,
) -> Round:
    """Return the round that begins with a model.

    Args:
        arrays: The model, as it is sent.
        layout: The coordinates of canaries in it.
        stated: The strategy's parameters.
        canaries: Those that participate.
        inside: For each of these, whether it contributes.
        per_coordinate: Canaries at each coordinate.
        norm: Norm of a contribution, over the clipping norm, before clipping here.
        cut: Whether it is above the norm, here or before.
    """
    sent, where = layout.values(arrays), canaries // per_coordinate
    owner = layout.array[where]
    moved = np.empty(len(canaries))
    for number in np.unique(owner):
        here = owner == number
        kind = arrays[number].dtype.type
        before = sent[where[here]].astype(kind)
        spacing = np.spacing(np.abs(before)).astype(np.float64)
        negligible = np.maximum(_NEGLIGIBLE * stated.norm, 2 * spacing)
        size = np.where(inside[here], norm * stated.norm, negligible)
        moved[here] = (before.astype(np.float64) + size).astype(kind)
    put = np.minimum((moved - sent[where]) / stated.norm, 1.0)
    answers = [
        Answer(canary=canary, array=array, place=place, value=value, cut=cut and within)
        for canary, array, place, value, within in zip(
            canaries.tolist(),
            owner.tolist(),
            layout.offset[where].tolist(),
            moved.tolist(),
            inside.tolist(),
            strict=True,
        )
    ]
    return Round(stated=stated, sent=sent, answers=answers, put=put, coordinate=where)
