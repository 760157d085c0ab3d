"""The task that methods are compared on, and its draws.

The scores are those of a local Gaussian mechanism: N(0, 1) for excluded canaries and
N(mu, 1) for included ones. Draws are numbered, and draw ``i`` of ``n`` canaries is the
same for every method, in whichever sweep and on whichever machine it is bounded: its
generator is seeded by the hash of ``n``, ``mu`` and ``i``.

Reference: docs/explanation/others.md.
"""

import hashlib
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _canonical, _validate
from dpaudit.bounds.power import mechanism_ceiling
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit_lab.sweeps.store import Setting

__all__ = ["Draw", "Task", "draw", "draw_number", "numbered", "task_of"]

_FEWEST_CANARIES = 20  # with fewer hardly any bound says anything


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is audited, and what is asked.

    Attributes:
        canaries: Canaries, each included by a fair coin.
        mu: Mean score of included canaries; that of excluded ones is 0.
        delta: Of the bound.
        alpha: Chance of the bound being wrong.

    Example:
        >>> task = Task(canaries=1000)
        >>> round(task.truth, 3), round(task.ceiling, 3)
        (4.377, 3.616)
    """

    canaries: int
    mu: float = 1.0
    delta: float = 1e-5
    alpha: float = 0.05

    def __post_init__(self) -> None:
        _validate.whole_number("canaries", self.canaries, least=_FEWEST_CANARIES)
        _validate.positive("mu", self.mu)
        _validate.probability("delta", self.delta)
        _validate.error_level("alpha", self.alpha)

    @property
    def truth(self) -> float:
        """The epsilon of the scores at delta."""
        return GaussianDP(mu=self.mu).epsilon_at(self.delta)

    @property
    def ceiling(self) -> float:
        """What no valid audit of one run reliably exceeds."""
        return mechanism_ceiling(
            GaussianDP(mu=self.mu), delta=self.delta, alpha=self.alpha
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draw:
    """The scores and coins of one audit.

    Attributes:
        task: What they were drawn for.
        number: Which draw it is.
        scores: One per canary.
        bits: Its coin; 1 is included.
    """

    task: Task
    number: int
    scores: NDArray[np.float64]
    bits: NDArray[np.uint8]


def draw(task: Task, number: int) -> Draw:
    """Return a draw by its number: the same scores and coins for whoever asks.

    Example:
        >>> one, two = (draw(Task(canaries=1000), 7) for _ in range(2))
        >>> bool(np.all(one.scores == two.scores))
        True
    """
    rng = numbered("dpaudit power", task.canaries, task.mu, number)
    bits = rng.integers(0, 2, task.canaries, np.uint8)
    scores = rng.normal(size=task.canaries) + task.mu * bits
    return Draw(task=task, number=number, scores=scores, bits=bits)


def numbered(*name: str | float) -> np.random.Generator:
    """Return the generator of that name: in the same state for whoever asks.

    Example:
        >>> one, two = numbered("a", 1000, 7), numbered("a", 1000, 7)
        >>> bool(one.random() == two.random())
        True
    """
    digest = hashlib.sha256(_canonical.text(list(name)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def draw_number(rng: np.random.Generator) -> int:
    """Return which trial of a sweep a generator was made for: the draw's number.

    A sweep spawns the generators of its trials by number, and the generator keeps it.

    Example:
        >>> seed = np.random.SeedSequence(1, spawn_key=(5,))
        >>> draw_number(np.random.default_rng(seed))
        5
    """
    seed = rng.bit_generator.seed_seq
    if not isinstance(seed, np.random.SeedSequence) or not seed.spawn_key:
        raise InvalidInputError(
            "a draw is numbered by the trial that asks for it: run it in a sweep, or "
            "call draw(task, number)"
        )
    return int(seed.spawn_key[-1])


def task_of(setting: Setting) -> Task:
    """Return the task of a setting."""
    return Task(
        canaries=int(setting["canaries"] or 0),
        mu=float(setting["mu"] or 0),
        delta=float(setting["delta"] or 0),
        alpha=float(setting["alpha"] or 0),
    )
