"""Control records: do scores reveal membership, and were the coin flips followed?

Where canaries show no effect, either training is private or nothing was tested: the
canaries never reached the training set, the model was never trained, or its losses
reveal nothing. Control records decide between the two. They are of the same kind as the
canaries but unprotected: a random half is trained on many times, the other half never.
If scores cannot separate even these halves, the absence of an effect proves nothing.

**Why the audit stays valid.** The halves are drawn from the key under another label
than the coins, so the two are independent; the number of records that controls add is
public. For each coin they are a part of the rest of the data, and the claim holds
whatever the rest is. Training on them many times costs them their own privacy, which
nobody claims. The guesser knows nothing about controls, and they refute no claim.

**Why at random.** A rank test is then exact for any records and any scores: if scores
do not depend on which controls were trained on, all divisions are equally likely. And
the division comes with the coins: training without ``included()``, or with another
key's, does not train on these controls either.

**Were the coins followed?** If all canaries are trained on, for instance because they
were left in the data, they show no effect even where controls do. An excluded canary
should score like a left-out control; if excluded canaries score as trained on, they
were. The test is exact if canaries and controls were divided at random (``set_aside``).
It has no power where a single record leaves no trace; then nothing shows that the coins
were followed, and the result reports that.
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

_MIN_CONTROLS: Final = 14  # with fewer, not even a perfect separation is significant
_MAX_CONTROLS: Final = 200  # more would add no power, and take longer
_MAX_EXCLUDED: Final = 500  # most excluded canaries; the smaller group limits the power


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Public records that show whether scores can reveal what was trained on.

    Attributes:
        records: Pairs (input, target) of the same kind as the canaries, from 14 to 200,
            none of them a canary or in the data that is always trained on. A random
            half of them is trained on.
        repeats: How many times each record of that half is in the training set.

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
        count = size("records", self.records)
        if not _MIN_CONTROLS <= count <= _MAX_CONTROLS:
            raise InvalidInputError(
                f"there must be from {_MIN_CONTROLS} to {_MAX_CONTROLS} control "
                f"records, got {count}"
            )

    def trained(self, key: Key) -> NDArray[np.bool_]:
        """Return which records are trained on, drawn independently of the coins."""
        count = size("records", self.records)
        # Raw words, whose stream is the same in every version of numpy.
        words = key.generator("controls", 0).bit_generator.random_raw(count)
        chosen = np.zeros(count, bool)
        chosen[np.argsort(words)[: count // 2]] = True
        return chosen

    def included(self, key: Key) -> Dataset[Record]:
        """Return the controls to train on, each record repeated."""
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
    """Return the sanity checks by controls, and what remains unknown.

    Args:
        effect: Whether guesses about canaries are better than chance.
        controls: The control records.
        scores: The controls' scores, in their order.
        excluded: The scores of excluded canaries, by their ids.
        key: The secret of the run.
    """
    silent = effect.status is not Status.PASSED
    trained = controls.trained(key)
    rng = key.generator("control ties", 0)
    p_separated = rank_sum_p_value(scores[trained], scores[~trained], tie_rng=rng)
    separated = _separated(p_separated, controls.repeats, silent=silent)
    every = -(-len(excluded) // _MAX_EXCLUDED) or 1
    sample = excluded[::every]
    followed = (
        (_followed(rank_sum_p_value(sample, scores[~trained], tie_rng=rng)),)
        if len(sample)
        else ()
    )
    if not silent or separated.status is not Status.PASSED:
        return (effect, separated, *followed), ()
    unknown = (
        "whether anything shows of a record that is trained on fewer than "
        f"{controls.repeats} times (no effect of any canary was seen, only of control "
        "records)",
        "whether the training set followed the coins",
    )
    return (replace(effect, status=Status.PASSED), separated, *followed), unknown


def _separated(p_value: float, repeats: int, *, silent: bool) -> Finding:
    """Return whether scores separate controls that were trained on from the others.

    Where canaries themselves show an effect, controls need not.
    """
    separated = p_value <= ALPHA_OF_EFFECT
    make = inconclusive if silent and not separated else passed
    return make(
        "controls.distinguished",
        distinguished=separated,
        repeats=repeats,
        p_value=p_value,
    )


def _followed(p_value: float) -> Finding:
    """Return whether excluded canaries score like records never trained on."""
    followed = p_value > ALPHA_OF_EFFECT
    make = passed if followed else inconclusive
    return make("controls.excluded", followed=followed, p_value=p_value)
