"""A result in a log of TensorBoard: scalars, and a table of everything.

TensorBoard keeps scalars in single precision. So a lower bound is rounded down and a
p-value up, and a p-value of 1e-60 becomes a small positive number and not 0: what is
drawn never says more than was shown. The table, a text, has every number in full,
among them infinite ones, which are not drawn.

The writer is the caller's: ``torch.utils.tensorboard.SummaryWriter``, or another with
these two methods. Torch's needs tensorboard itself, which is the extra ``tensorboard``.
"""

from math import isfinite
from typing import Any, Protocol

import numpy as np

from dpaudit.game.result import Result
from dpaudit.reporting.loggers.plain import Metric, as_metrics

__all__ = ["Writer", "log_to_tensorboard"]

_DOWN = ("dpaudit/epsilon_lower", "dpaudit/tier_b/")
_UP = ("dpaudit/p_value", "dpaudit/ceiling", "dpaudit/accuracy_caught")


class Writer(Protocol):
    """What is asked of a writer of logs."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> Any:  # noqa: ANN401 (whatever the writer returns)
        """Write a number."""
        ...

    def add_text(self, tag: str, text_string: str, global_step: int, /) -> Any:  # noqa: ANN401
        """Write a text in Markdown."""
        ...


def log_to_tensorboard(result: Result, writer: Writer, step: int) -> None:
    """Log a result to TensorBoard.

    Args:
        result: Of any audit.
        writer: Where to.
        step: When in the run.
    """
    metrics = as_metrics(result)
    for name, value in metrics.items():
        if not isinstance(value, str) and isfinite(value):
            writer.add_scalar(name, _single(name, float(value)), step)
    writer.add_text("dpaudit/result", _table(metrics), step)


def _single(name: str, value: float) -> float:
    """Return a number that single precision holds, on the side that shows less."""
    near = np.float32(value)
    if name.startswith(_DOWN) and float(near) > value:
        near = np.nextafter(near, np.float32(-np.inf))
    if name.startswith(_UP) and float(near) < value:
        near = np.nextafter(near, np.float32(np.inf))
    return float(near)


def _table(metrics: dict[str, Metric]) -> str:
    rows = [f"| {name} | {_cell(value)} |" for name, value in metrics.items()]
    return "\n".join(["| what | value |", "| --- | --- |", *rows])


def _cell(value: Metric) -> str:
    return str(value).replace("|", "\\|")
