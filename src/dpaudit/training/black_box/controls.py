"""Control records: do scores tell what was trained on, and were the coins followed?

Where canaries show no effect, a training may be private, or nothing was tested: their
records never reached the training, the model was never trained, or its losses tell
nothing. Control records decide between the two. They are of the same kind as the
canaries, but nobody protects them: a half, drawn by lot, is trained on many times, the
other half never. If even they cannot be told apart, silence says nothing.

**Why the audit stays valid.** The lots are drawn from the key under another label than
the coins, so that they and the coins are independent; how many records they add is
public. To a coin they are a part of the rest of the data, and the claim holds whatever
the rest is. Being trained on many times costs them their own privacy, which nobody
claims. Nothing about controls is known to the guesser, and none makes a refutation.

**Why by lot.** A test by ranks is then exact for any records and any scores: if scores
do not depend on which controls were trained on, all divisions are equally likely. And
the lots come with the coins: whoever trains without ``included()``, or with what
another key gave, has not trained on these controls either.

**Were the coins followed?** Canaries that are all trained on, for instance as they were
left in the data, show no effect even where controls do. An excluded canary should look
like a left-out control; if excluded canaries look more trained on, they were. The test
is exact if canaries and controls were divided by lot (``set_aside``). It finds nothing
where a single record leaves no trace; then nothing shows that coins were followed, and
the result says so.
"""

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, Subset

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.findings import Finding, Status, inconclusive, passed
from dpaudit.game.verdict import ALPHA_OF_EFFECT
from dpaudit.stats.rank_sum import rank_sum_p_value
from dpaudit.training.black_box.canaries import Record, size

__all__ = ["Controls", "seen_of_controls"]

_LEAST: Final = 14  # with fewer, not even a perfect division is surprising
_MOST: Final = 200  # more would tell no more, and take longer
_COMPARED: Final = 500  # excluded canaries at most; the smaller group limits the test


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Public records that show whether scores can tell what was trained on.

    Attributes:
        records: Pairs (input, target) of the same kind as the canaries, from 14 to 200,
            none of them a canary or in the data that is always trained on. Half of
            them, by lot, is trained on.
        repeats: How many times each of that half is in the training set.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from dpaudit.training.black_box import mislabelled, set_aside
        >>> data = TensorDataset(torch.eye(500), torch.arange(500) % 3)
        >>> wrong = mislabelled(data, count=300, classes=3, seed=0)
        >>> records, canaries = set_aside(wrong, count=60, seed=1)
        >>> len(canaries), len(Controls(records=records, repeats=20).records)
        (240, 60)
    """

    records: Dataset[Record]
    repeats: int

    def __post_init__(self) -> None:
        _validate.whole_number("repeats", self.repeats, least=1)
        found = size("records", self.records)
        if not _LEAST <= found <= _MOST:
            raise InvalidInputError(
                f"there must be from {_LEAST} to {_MOST} control records, got {found}"
            )

    def trained(self, key: Key) -> NDArray[np.bool_]:
        """Return which records are trained on, by lots that no coin decides."""
        count = size("records", self.records)
        # Raw words, as their stream stays the same in every version of numpy.
        lots = key.generator("controls", 0).bit_generator.random_raw(count)
        chosen = np.zeros(count, bool)
        chosen[np.argsort(lots)[: count // 2]] = True
        return chosen

    def included(self, key: Key) -> Dataset[Record]:
        """Return what they put into the training set, each record repeated."""
        places = np.repeat(np.flatnonzero(self.trained(key)), self.repeats)
        return Subset(self.records, places.tolist())


def seen_of_controls(
    effect: Finding,
    controls: Controls,
    *,
    scores: NDArray[np.float64],
    excluded: NDArray[np.float64],
    key: Key,
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Return what all controls say, and what remains unknown.

    Args:
        effect: Whether guesses about canaries are better than chance.
        controls: The control records.
        scores: Theirs, in their order.
        excluded: The scores of excluded canaries, by their ids.
        key: The secret of the run.
    """
    silent = effect.status is not Status.PASSED
    trained = controls.trained(key)
    rng = key.generator("control ties", 0)
    p_told = rank_sum_p_value(scores[trained], scores[~trained], tie_rng=rng)
    told = _told(p_told, controls.repeats, silent=silent)
    every = -(-len(excluded) // _COMPARED) or 1
    some = excluded[::every]
    followed = (
        (_followed(rank_sum_p_value(some, scores[~trained], tie_rng=rng)),)
        if len(some)
        else ()
    )
    if not silent or told.status is not Status.PASSED:
        return (effect, told, *followed), ()
    unknown = (
        "whether anything shows of a record that is trained on fewer than "
        f"{controls.repeats} times (no effect of any canary was seen, only of control "
        "records)",
        "whether the training set followed the coins",
    )
    return (replace(effect, status=Status.PASSED), told, *followed), unknown


def _told(p_value: float, repeats: int, *, silent: bool) -> Finding:
    """Return whether scores tell controls that were trained on from others.

    Where canaries show an effect themselves, no control has to.
    """
    told = p_value <= ALPHA_OF_EFFECT
    make = inconclusive if silent and not told else passed
    return make("controls.told_apart", told=told, repeats=repeats, p_value=p_value)


def _followed(p_value: float) -> Finding:
    """Return whether excluded canaries look as if they had been trained on."""
    followed = p_value > ALPHA_OF_EFFECT
    make = passed if followed else inconclusive
    return make("controls.excluded", followed=followed, p_value=p_value)
