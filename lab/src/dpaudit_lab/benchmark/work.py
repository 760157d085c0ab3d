"""Trials that do nothing but use the CPU: in a file that is quickly imported."""

import numpy as np

from dpaudit_lab.sweeps.store import Outcome, Setting

__all__ = ["work"]


def work(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Draw and add up numbers, so often.

    Example:
        >>> work({"rounds": 0}, np.random.default_rng(1))
        {'x': 0.0}
    """
    total = 0.0
    for _ in range(int(setting["rounds"] or 0)):
        total += float(rng.standard_normal(1000).sum())
    return {"x": total}
