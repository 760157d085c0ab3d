"""Audits of mechanisms, the paper's or one's own, over the number of elements.

Each mechanism is run with ever more elements, and a share of the coins is guessed, the
likeliest. How many are right is kept in a store, so that a study that was broken off
goes on, and one that is drawn once more takes no time. Beside the median bound of each
mechanism stands its limit, if it knows all that its outputs say: no valid audit of as
many elements exceeds it in more than half of its runs.

A trial is known by what its mechanism prints as, with its parameters: whoever changes
the code of a mechanism names a new store.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import cpu_count
from pathlib import Path
from typing import final

import numpy as np
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts
from dpaudit.engines.local import LocalEngine
from dpaudit.errors import InvalidInputError
from dpaudit.game.auditors import play_one_run
from dpaudit.game.guessers import MostLikely
from dpaudit.testing import fixed_key
from dpaudit.theory.capabilities import (
    Simulable,
    can_be_simulated,
    has_output_likelihood,
)
from dpaudit.theory.limit import limit
from dpaudit_lab.paper.counting import ALPHA
from dpaudit_lab.paper.figure import number
from dpaudit_lab.paper.one_game import one_run_design
from dpaudit_lab.pictures.chart import (
    Chart,
    Curve,
    Limit,
    Look,
    Point,
    mean_point,
    median_point,
)
from dpaudit_lab.sweeps.progress import watched
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep, run

__all__ = ["Study"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Mechanisms of one epsilon, each audited with ever more elements.

    Attributes:
        mechanisms: By the names that their curves get. Each has ``run``, ``pairs`` and
            ``log_odds``; one with ``said`` gets its limit drawn in.
        epsilon: The true epsilon of all of them, at delta.
        store: File that trials are kept in.
        elements: How many, in rising order.
        share: Of the coins that are guessed; the likeliest are.
        trials: Runs of each mechanism with each number of elements.
        delta: Of the privacy that is audited.
        alpha: Chance of a bound being wrong.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit.mechanisms.local import LocalRandomisedResponse
        >>> with TemporaryDirectory() as folder:
        ...     study = Study(
        ...         mechanisms={"response": LocalRandomisedResponse(epsilon=1.0)},
        ...         epsilon=1.0,
        ...         store=f"{folder}/study.sqlite",
        ...         elements=(100,),
        ...         trials=9,
        ...     )
        ...     bound, most = study.bounds().points
        >>> bound.mean < most.mean < 1.0
        True
    """

    mechanisms: Mapping[str, Simulable]
    epsilon: float
    store: str | Path
    elements: tuple[int, ...] = (100, 300, 1000, 3000, 10_000)
    share: float = 1.0
    trials: int = 200
    delta: float = 0.0
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        _validate.nonnegative("epsilon", self.epsilon)
        _validate.positive("share", self.share)
        _validate.probability("share", self.share)
        _validate.whole_number("trials", self.trials, least=2)  # for an error
        for mechanism in self.mechanisms.values():
            if not can_be_simulated(mechanism):
                raise InvalidInputError(
                    "a mechanism must have run(data, rng), pairs and log_odds(output), "
                    f"got {mechanism!r}"
                )
            if " at 0x" in repr(mechanism):
                raise InvalidInputError(
                    "a mechanism must print as what it is, with its parameters, so "
                    f"that its trials are found again; got {mechanism!r}: make it a "
                    "dataclass"
                )

    def bounds(self) -> Chart:
        """Return median bounds, with the limit and the true epsilon drawn in."""
        curves = tuple(
            curve
            for colour, (name, mechanism) in enumerate(self.mechanisms.items())
            for curve in _curves(name, colour, mechanism)
        )
        dotted = " Dotted: no valid audit's median is above."
        return self._chart(
            title="Lower bounds over the number of elements",
            y_label="lower bound on epsilon",
            caption=f"{self._guessed}; delta = {self.delta:g}, alpha = {self.alpha:g}."
            f"\nMedians of {self.trials} runs; bands: one standard error."
            f"{dotted if len(curves) > len(self.mechanisms) else ''}",
            curves=curves,
            points=(*self._medians(), *self._most()),
            limits=(Limit(name="true epsilon", level=self.epsilon),),
        )

    def efficacy(self) -> Chart:
        """Return mean shares of right guesses, beside that of the true epsilon."""
        level = float(special.expit(self.epsilon))
        return self._chart(
            title="Efficacy over the number of elements",
            y_label="efficacy: share of right guesses",
            caption=f"{self._guessed}.\nMeans of {self.trials} runs; bands: one "
            "standard error.",
            curves=tuple(
                Curve(name=name, colour=colour)
                for colour, name in enumerate(self.mechanisms)
            ),
            points=tuple(
                mean_point(name, n, [v / self._guesses(n) for v in right])
                for name, n, right in self._right()
            ),
            limits=(Limit(name="true epsilon, as a share", level=level),),
        )

    @property
    def _guessed(self) -> str:
        if self.share == 1:
            return "Every coin guessed"
        return f"The likeliest {self.share:.0%} of the coins guessed"

    def _chart(
        self,
        *,
        title: str,
        y_label: str,
        caption: str,
        curves: tuple[Curve, ...],
        points: tuple[Point, ...],
        limits: tuple[Limit, ...],
    ) -> Chart:
        return Chart(
            title=title,
            caption=caption,
            x_label="elements, n",
            y_label=y_label,
            curves=curves,
            points=points,
            limits=limits,
            ticks=self.elements,
        )

    def _medians(self) -> Iterator[Point]:
        for name, n, right in self._right():
            bounds = {v: self._bound(n, v) for v in {*right}}
            yield median_point(name, n, [bounds[v] for v in right])

    def _bound(self, elements: int, right: int) -> float:
        counts = Counts(
            canaries=elements, guesses=self._guesses(elements), correct=right
        )
        found = ExactBound().epsilon_lower(counts, delta=self.delta, alpha=self.alpha)
        return found.epsilon_lower

    def _most(self) -> Iterator[Point]:
        for name, mechanism in self.mechanisms.items():
            if has_output_likelihood(mechanism):
                for n in self.elements:
                    most = limit(
                        mechanism.output_likelihood(n),
                        alpha=self.alpha,
                        delta=self.delta,
                    )
                    yield Point(curve=_limit_of(name), x=n, mean=most)

    def _right(self) -> Iterator[tuple[str, int, list[int]]]:
        """Yield how many guesses were right: of each mechanism, with each number."""
        settings: dict[tuple[str, int], Setting] = {
            (name, n): {
                "mechanism": repr(mechanism),
                "elements": n,
                "guesses": self._guesses(n),
            }
            for name, mechanism in self.mechanisms.items()
            for n in self.elements
        }
        by_repr = {repr(each): each for each in self.mechanisms.values()}
        sweep = Sweep(
            name="audits over the number of elements",
            revision=1,
            function=partial(_trial, by_repr),
            settings=[*settings.values()],
            trials=self.trials,
        )
        with _filled(sweep, self.store) as store:
            for (name, n), setting in settings.items():
                yield name, n, sweep.columns(store, setting)["right"]

    def _guesses(self, elements: int) -> int:
        return max(1, round(self.share * elements))


def _curves(name: str, colour: int, mechanism: Simulable) -> Iterator[Curve]:
    yield Curve(name=name, colour=colour)
    if has_output_likelihood(mechanism):
        yield Curve(name=_limit_of(name), colour=colour, look=Look.BESIDE)


def _limit_of(name: str) -> str:
    return f"limit of {name}"


def _trial(
    mechanisms: Mapping[str, Simulable], setting: Setting, rng: np.random.Generator
) -> Outcome:
    """Run a mechanism once, and count right guesses."""
    mechanism = mechanisms[str(setting["mechanism"])]
    n, k = (int(number(setting, name)) for name in ("elements", "guesses"))
    played = play_one_run(
        mechanism,
        MostLikely(mechanism=mechanism, guesses=k),
        pairs=mechanism.pairs,
        design=one_run_design(mechanism.pairs, canaries=n, guesses=k),
        key=fixed_key(rng.bytes(32)),
        rng=rng,
    )
    right, _ = played.reading().correct_and_guesses()
    return {"right": right}


@contextmanager
def _filled(sweep: Sweep, path: str | Path) -> Iterator[Store]:
    """Run what the store lacks, showing how far it is, and yield it."""
    with Store(path) as store:
        with watched(sweep.name) as progress:
            engine = LocalEngine(workers=cpu_count() or 1)
            failed = run(sweep, engine=engine, store=store, progress=progress).failed
        if failed:
            first = next(
                trace
                for setting in sweep.settings
                for _, trace in store.failures(sweep.cell(setting))
            )
            raise InvalidInputError(
                f"{failed} trials raised, and are tried again when the study is; the "
                f"first said:\n{first}"
            )
        yield store
