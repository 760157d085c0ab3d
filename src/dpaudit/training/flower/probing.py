"""Probe how much one client can change the mean before noise.

A copy of the strategy, with its noise off, aggregates a small round of clients with
chosen updates. The noise is scaled to a client that moves the mean of N clients by at
most ``C / N``, with C the clipping norm; in a round of ``n`` clients that is ``C / n``,
and the copy is tested for this with updates below the norm and far above it.

First all clients have equally many examples: does one move the mean by more, and does
its contribution depend on the others (``dpaudit.training.probe``)? Then one client has
more examples than the others: if replies are weighted by them, it moves the mean by
more than the noise covers. A removed client contributes nothing, as in a neighbouring
data set; its weight stays.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from math import hypot
from typing import Any, Final, TypeAlias, final

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, fault, not_checked
from dpaudit.training.flower.messages import by_nobody, client_reply
from dpaudit.training.flower.setup import Stated, clips_on_clients, weighted_by, within
from dpaudit.training.layout import Arrays
from dpaudit.training.probe import probe_sum
from dpaudit.training.probe.report import LEAST, Sensitivity

__all__ = ["Mod", "probe_clients"]

Mod: TypeAlias = Callable[[Message, Any, Any], Message]
_Mean: TypeAlias = dict[str, NDArray[np.float64]]

_NEGLIGIBLE: Final = 1e-6  # of the clipping norm; Flower divides by an update's norm
_NORM: Final = "clipping_norm"  # its name in the configuration that mods read
_NORM_BIT: Final = "norm_bit"  # the metric by which clients report it if it adapts


def probe_clients(
    strategy: Any,  # noqa: ANN401 (a strategy, or like one)
    model: Arrays,
    *,
    examples: Sequence[int] = (1, 20),
    clients: int = 8,
    mods: Sequence[Mod] = (),
    seed: int = 0,
) -> Sensitivity:
    """Return how much one client changes the mean, over the clipping norm.

    Args:
        strategy: The one that adds noise; a copy of it is used.
        model: The model to probe at.
        examples: Numbers of examples that clients have.
        clients: Number of clients in a probed round, 3 or more.
        mods: The clients' mods for their updates, if they clip.
        seed: Of their updates.
    """
    _validate.whole_number("clients", clients, least=3)
    for each in examples:
        _validate.whole_number("examples", each, least=1)
    if not len(examples):
        raise InvalidInputError("examples must name one number of examples at least")
    few, many = min(examples), max(examples)
    means = _Means(strategy, model, mods)
    norm = Stated.by(strategy).norm / clients
    rng = np.random.default_rng(seed)
    updates = [rng.normal(size=(clients, *each.shape)) for each in means.floats]
    length = np.sqrt(sum(np.square(each).sum() for each in updates) / clients)
    rows = [0.7 * norm * clients / length * each for each in updates]
    unclipped = clips_on_clients(strategy) and not mods

    def equal(rows: Sequence[NDArray[Any]], keep: NDArray[Any], scale: float) -> _Mean:
        if unclipped:  # as if clients had: nothing above the norm
            scale = min(scale, 1.0)
        return means.of(rows, keep, scale, [few] * clients)

    try:
        report = probe_sum(equal, rows, norm=norm, records=clients, seed=seed)
    except (AttributeError, TypeError, ValueError) as error:
        why = not_checked(Stage.CLIPPING, "probe.not_aggregated", error=str(error))
        return Sensitivity(unseen=why, ran="strategy")
    report = replace(report, ran="strategy", enlarged=report.enlarged and not unclipped)
    if many > few and not report.faults and not report.unseen:
        report = _weighed(report, means, rows, few, many)
    return report


def _weighed(
    found: Sensitivity,
    means: "_Means",
    rows: Sequence[NDArray[Any]],
    few: int,
    many: int,
) -> Sensitivity:
    """Add the change by a client of many examples among others of few."""
    clients = len(rows[0])
    others = [few] * (clients - 1)
    usual = means.own(rows, [few, *others])
    times = means.own(rows, [many, *others]) / usual if usual else 0.0
    if times <= 1 + LEAST:
        return found
    wrong = fault(
        Stage.AGGREGATION,
        "probe.weighed_by_examples",
        many=many,
        others=clients - 1,
        few=few,
        times=times,
    )
    return replace(found, faults=(wrong,))


@final
class _Means:
    """Computes the mean of chosen clients by a copy of a strategy without noise."""

    def __init__(
        self,
        strategy: Any,  # noqa: ANN401
        model: Arrays,
        mods: Sequence[Mod],
    ) -> None:
        self._flwr_strategy, self._model, self._mods = strategy, [*model], mods
        self._stated, self._weight = Stated.by(strategy), weighted_by(strategy)
        kinds = [np.issubdtype(each.dtype, np.floating) for each in model]
        self._numbers = [number for number, kind in enumerate(kinds) if kind]
        self.floats = [self._model[number] for number in self._numbers]

    def of(
        self,
        rows: Sequence[NDArray[Any]],
        keep: NDArray[Any],
        scale: float,
        examples: Sequence[int],
    ) -> _Mean:
        """Return the change of the model in a round.

        Args:
            rows: For each float array the updates of all clients.
            keep: Which of them contribute.
            scale: Factor of the updates.
            examples: Number of examples that each client reports.
        """
        replies = []
        for client, kept in enumerate(keep):
            arrays = [*self._model]
            for number, each in zip(self._numbers, rows, strict=True):
                before = self._model[number]
                moved = before + scale * each[client] if kept else before
                arrays[number] = np.asarray(moved, before.dtype)
            if not kept:
                self._touch(arrays)
            replies.append((arrays, examples[client]))
        after = self._aggregated(replies)
        return {
            f"array {number}": after[number].astype(np.float64)
            - self._model[number].astype(np.float64)
            for number in self._numbers
        }

    def own(self, rows: Sequence[NDArray[Any]], examples: Sequence[int]) -> float:
        """Return how far the first client moves the mean."""
        keep = np.ones(len(examples), bool)
        whole = self.of(rows, keep, 1.0, examples)
        keep[0] = False
        rest = self.of(rows, keep, 1.0, examples)
        return hypot(*(float(np.linalg.norm(whole[k] - rest[k])) for k in whole))

    def _touch(self, arrays: list[NDArray[Any]]) -> None:
        """Change one number by a negligible amount."""
        number = self._numbers[0]
        arrays[number] = arrays[number].copy()
        flat = arrays[number].reshape(-1)
        least = 2 * float(np.spacing(np.abs(flat[0])))
        flat[0] += max(_NEGLIGIBLE * self._stated.norm, least)

    def _aggregated(self, clients: Sequence[tuple[Arrays, int]]) -> Arrays:
        strategy = self._silenced()
        replies = [self._reply(arrays, examples) for arrays, examples in clients]
        aggregated, _ = strategy.aggregate_train(1, replies)
        return list(aggregated.to_numpy_ndarrays())

    def _silenced(self) -> Any:  # noqa: ANN401
        """Return a noiseless copy of the strategy, ready to aggregate a round."""
        copy = deepcopy(self._flwr_strategy)
        copy.noise_multiplier = 0.0
        if hasattr(copy, "accountant"):
            copy.accountant = None
        if hasattr(copy, "clipped_count_stddev"):
            copy.clipped_count_stddev = 0.0
        sent = ArrayRecord(self._model)
        for each in within(copy):  # as if each had configured the round
            if isinstance(getattr(each, "current_arrays", None), ArrayRecord):
                each.current_arrays = sent
            elif hasattr(each, "current_arrays"):  # of an optimizer on the server
                each.current_arrays = {k: v.numpy() for k, v in sent.items()}
            if hasattr(each, "current_round_params"):
                each.current_round_params = [*self._model]
        return copy

    def _reply(self, arrays: Arrays, examples: int) -> Message:
        """Return a client's reply, passed through its mods."""
        metrics: dict[str, int | float] = {self._weight: examples}
        if not self._mods:
            metrics[_NORM_BIT] = 0
        reply = client_reply(ArrayRecord(list(arrays)), metrics)
        call: Any = lambda _message, _context: reply  # noqa: E731
        for mod in reversed(self._mods):
            call = _through(mod, call)
        if not self._mods:
            return reply
        asked = RecordDict(
            {
                "arrays": ArrayRecord(self._model),
                "config": ConfigRecord({_NORM: self._stated.norm}),
            }
        )
        answer: Message = call(by_nobody(asked), None)
        return answer


def _through(mod: Mod, call: Any) -> Any:  # noqa: ANN401
    return lambda message, context: mod(message, context, call)
