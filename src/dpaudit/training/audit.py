"""The life of one audit of training: opened, shown noisy sums, saved, closed.

Whoever audits a training holds one of these and adds two things: where canaries go into
the sums, and where noisy sums come out. The rest is the same for every framework. The
design is completed with what was read of the training, and committed to. The key's
draws say which canaries join a step; the noisy sums of each step are kept as
likelihoods; at the end the guesser guesses, and the game is judged.

Its two halves do not know each other. ``draws`` knows the coins, and is for what puts
canaries in. ``reading`` is all that the guesser keeps of the sums; no coin can be
reached from it. Only the audit holds both, so what reads sums must not hold the audit.

A state in a file is plain arrays, without pickle and without the key. It holds what the
guesser has seen so far and the commitment, which binds it to its key and design; a
state of another audit is refused. It says nothing about the coins that the noisy sums
do not say: how these answered to the coins is sealed with the key (``arrival``).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit._canonical import Scalar
from dpaudit.dpsgd.joining import Poisson
from dpaudit.dpsgd.sums import canary_log_odds
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.guessers import most_likely
from dpaudit.game.referee import Referee
from dpaudit.game.verdict import Control
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.training.arrival import Arrivals
from dpaudit.training.draws import Draws
from dpaudit.training.guessing import (
    Played,
    check_design,
    guess,
    guess_among,
    opened,
    per_coordinate,
)
from dpaudit.training.reading import Sampling, SumsReading
from dpaudit.training.result import TrainingResult, conclude_training
from dpaudit.training.saving import read_state, write_state

__all__ = ["Gather", "TrainingAudit", "coordinates_needed"]

State: TypeAlias = Mapping[str, NDArray[Any]]
Gather: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


def coordinates_needed(design: Design) -> int:
    """Return how many coordinates the canaries of a design need."""
    return design.canaries // per_coordinate(design)


@final
class TrainingAudit:
    """One audit of one training, from its opening to its result.

    Args:
        design: Fixed beforehand.
        key: The secret of this run; never use one twice.
        sample_rate: Chance of a canary to join a step, where the draws decide.
        read: What was read of the training, for the record.
        real_sums: Whether the guesser knows what real records put into the sums.
        sampling: How the guesser believes that canaries join steps; as the draws do if
            left out.
        own: Numbers of the coordinates that are read here; all of them if left out.
        groups: For each of these a number; those of one number are alike in noise and
            in what real gradients leave there. All are alike if left out.
        by_program: Whether the program itself, and not the audit, puts the canaries
            into the sums, as it does with records.

    Attributes:
        draws: Who joins a step. Secret; not for what reads the sums.
        reading: What the guesser keeps of the sums.
        design: As it is committed to: the one given, with what was read.
        commitment: To publish before training.

    Example:
        >>> from dpaudit import ApproxDP, OneRun
        >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
        >>> audit = TrainingAudit(
        ...     design=Design(canaries=500, rules=OneRun(guesses=100), claim=claim),
        ...     key=Key(bytes(32)),  # for a real audit: Key.generate()
        ...     sample_rate=0.5,
        ...     read={"framework": "none"},
        ...     real_sums=False,
        ... )
        >>> rng = np.random.default_rng(0)
        >>> for _ in range(50):  # noise multiplier 0.5
        ...     joined = audit.joining()
        ...     audit.observe(joined + 0.5 * rng.normal(size=500), joined)
        >>> audit.finish(claim=None, not_exercised=("clipping",)).refuted
        True
    """

    def __init__(  # noqa: PLR0913 (each is something that is fixed beforehand)
        self,
        *,
        design: Design,
        key: Key,
        sample_rate: float,
        read: Mapping[str, Scalar],
        real_sums: bool,
        sampling: Sampling | None = None,
        own: NDArray[np.int64] | None = None,
        groups: NDArray[np.int64] | None = None,
        by_program: bool = False,
    ) -> None:
        check_design(design)
        size = per_coordinate(design)
        self.draws = Draws(
            key=key,
            canaries=design.canaries,
            per_coordinate=size,
            sample_rate=sample_rate,
        )
        complete = {"per_coordinate": size, **read}
        self._referee = Referee(opened(design, complete, real_sums=real_sums), key)
        self.design, self.commitment = self._referee.design, self._referee.commitment
        self._own = np.arange(coordinates_needed(design)) if own is None else own
        self.reading = SumsReading(
            coordinates=len(self._own),
            per_coordinate=size,
            sampling=Poisson(rate=sample_rate) if sampling is None else sampling,
            groups=groups,
        )
        self._arrivals = Arrivals(len(self._own), key, by_program=by_program)

    def joining(self) -> NDArray[np.int64]:
        """Return how many included canaries join the coming step at each coordinate.

        Secret, as the draws are.
        """
        return self.draws.joining(self.reading.steps)

    def observe(self, sums: NDArray[Any], joined: NDArray[Any]) -> None:
        """Read what a step's noisy sum shows; this ends the step.

        Args:
            sums: The noisy sum at each coordinate, over the clipping norm, less what
                real records put there as far as that is known.
            joined: What the canaries put there, likewise over the clipping norm. The
                guesser never learns it.
        """
        self.reading.observe(sums)
        self._arrivals.observe(sums, joined)

    def save(self, path: str | Path, more: State | None = None) -> None:
        """Write what was seen so far to a file that holds no key.

        The file is replaced as a whole or not at all.

        Args:
            path: The file.
            more: What else the holder needs to go on, under names of its own.
        """
        state = {**(more or {}), **self.reading.saved(), **self._arrivals.saved()}
        write_state(path, self.commitment, state)

    def read_state(self, path: str | Path) -> State:
        """Return the state in a file that ``save`` wrote, if it is this audit's."""
        return read_state(path, self.commitment)

    def resume(self, state: State) -> None:
        """Go on from a state."""
        self.reading.restore(state)
        self._arrivals.restore(state)

    def finish(
        self,
        *,
        claim: Guarantee | None,
        not_exercised: tuple[str, ...],
        controls: tuple[Control, ...] = (),
        remarks: tuple[str, ...] = (),
        gather: Gather | None = None,
    ) -> TrainingResult:
        """Guess, and judge.

        Args:
            claim: What the accountant stands for, as far as it is known.
            not_exercised: Parts of the training that the audit did not run through.
            controls: What else was looked at to see whether there was anything to see.
            remarks: What was noticed without any statistics.
            gather: From numbers of the coordinates that are read here to those of all
                ranks, if there are several.
        """
        played = self._guess() if gather is None else self._guess_together(gather)
        found = self._arrivals.found
        return conclude_training(
            played,
            reading=self.reading,
            arrival=found() if gather is None else found(gather),
            commitment=self.commitment,
            claim=claim,
            not_exercised=not_exercised,
            controls=controls,
            remarks=remarks,
        )

    def _guess(self) -> Played:
        return guess(self._referee, self.reading.log_likelihood())

    def _guess_together(self, gather: Gather) -> Played:
        """Guess the surest canaries of all ranks; each hands over its own surest."""
        size = per_coordinate(self.design)
        odds = canary_log_odds(self.reading.log_likelihood())
        best, _ = most_likely(odds, guesses=self.design.guesses)
        canaries = self._own[best // size] * size + best % size
        index, surest = gather(canaries), gather(odds[best])
        order = np.argsort(index)  # ties go to the smaller number, as on one rank
        return guess_among(self._referee, index[order], surest[order])
