"""A planned audit of DP-SGD: what to fix beforehand, and what to expect of it.

The plan is a value: it says what it rests on, becomes the design that a referee is
opened with, and can be rehearsed on simulated training.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import assert_never, final

import numpy as np

from dpaudit.bounds.bound import confidence_text, rounded_down
from dpaudit.dpsgd.planning.candidates import Candidate, Purpose
from dpaudit.dpsgd.planning.expected_one_run import Expected
from dpaudit.dpsgd.planning.forecasts import fixed_number
from dpaudit.dpsgd.planning.limit import training_limit
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.errors import InvalidInputError
from dpaudit.game.auditors import audit_adaptive, audit_one_run
from dpaudit.game.coins import Key
from dpaudit.game.design import Design, ThreatModel
from dpaudit.game.guessers import AdaptiveMostLikely, MostLikely
from dpaudit.game.result import Result
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.game.verdict import POWER
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.theory.gap_levels import Estimate

__all__ = ["Plan", "rehearse"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An audit to be made, and what is expected of it; printing it says both.

    Attributes:
        training: What will be trained.
        claim: What is claimed of it.
        purpose: What the audit is for.
        available: How many coordinates could hold canaries.
        coordinates: How many do.
        alpha: Chance of being wrong.
        per_coordinate: Canaries at each coordinate.
        rules: What the game is played by.
        expected: The mean bound, and its spread from run to run.
        true_epsilon: What an accountant proves at the claim's delta; None if not asked.
        ceiling: The most that any one-run audit reliably shows: the accountant's
            epsilon at delta / alpha; None if it was not asked.
        all_right: The bound if every guess were right.
        fault: By which factor the noise must be too small for the claim to be refuted
            with chance 0.9; None if not even 32 is enough.
        candidates: The audits that it was chosen among, from smaller simulations.
    """

    training: TrainingSetup
    claim: ApproxDP
    purpose: Purpose
    available: int
    coordinates: int
    alpha: float
    per_coordinate: int
    rules: OneRun | AdaptiveRounds
    expected: Expected
    true_epsilon: float | None
    ceiling: float | None
    all_right: float
    fault: float | None
    candidates: tuple[Candidate, ...]

    @property
    def canaries(self) -> int:
        """How many canaries in all."""
        return self.coordinates * self.per_coordinate

    @property
    def method(self) -> str:
        """The bound that the audit is judged by."""
        return self.rules.bound().method

    def design(self) -> Design:
        """Return the design to open the audit's referee with."""
        return Design(
            canaries=self.canaries,
            rules=self.rules,
            claim=self.claim,
            alpha=self.alpha,
            threat_model=ThreatModel.ALL_ITERATES,
            setting=replace(
                self.training.setting(),
                coordinates=self.coordinates,
                per_coordinate=self.per_coordinate,
                expected_epsilon=self.expected.mean,
                detectable_factor=self.fault,
            ),
        )

    def limit(self, *, seed: int = 0) -> Estimate:
        """Return what no valid audit of these canaries shows, in half of its runs.

        However it guesses, and whatever it adapts to. It takes some seconds.

        Args:
            seed: Decides what is simulated for it.
        """
        return training_limit(
            self.training,
            coordinates=self.coordinates,
            per_coordinate=self.per_coordinate,
            alpha=self.alpha,
            delta=self.claim.delta,
            seed=seed,
        )

    def rehearse(self, *, rng: np.random.Generator, key: Key | None = None) -> Result:
        """Return the result of the whole audit on simulated training.

        Args:
            rng: The training's randomness.
            key: The secret of the coins; a new one if left out.
        """
        return rehearse(
            self.design(),
            self.training,
            per_coordinate=self.per_coordinate,
            rng=rng,
            key=key,
        )

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.training}, claimed to be {self.claim}.",
                f"Put {_some(self.per_coordinate, 'canary', 'canaries')} at each of "
                f"{_some(self.coordinates, 'coordinate', 'coordinates')}"
                f"{self._spared()} ({self.canaries} in all) and {self._rules()}.",
                self._fault(),
                f"Expect epsilon >= {rounded_down(self.expected.mean)} on average, "
                f"give or take {self.expected.spread:.3f}, at delta = "
                f"{self.claim.delta:g} ({confidence_text(self.alpha)}, for any "
                f"mechanism; method {self.method}).",
                self._ceilings(),
            ]
        )

    def table(self) -> str:
        """Return what was compared."""
        for_faults = self.purpose is Purpose.FAULTS
        head = (
            f"Compared, from smaller simulations (alpha = {self.alpha:g}, tier A): "
            f"canaries per coordinate, rules, mean bound at delta = "
            f"{self.claim.delta:g}"
            + (
                ", least factor on the noise that is caught (- if it is larger)"
                if for_faults
                else ""
            )
        )
        return "\n".join([head, *(self._row(each) for each in self.candidates)])

    def _row(self, candidate: Candidate) -> str:
        match candidate.rules:
            case OneRun(guesses=guesses):
                rules = f"{guesses} at once"
            case AdaptiveRounds():
                rules = f"{len(candidate.rules.round_weights)} rounds"
            case _:
                assert_never(candidate.rules)
        row = f"{candidate.per_coordinate:>4}  {rules:>16}  {candidate.bound:7.3f}"
        if self.purpose is not Purpose.FAULTS:
            return row
        fault = candidate.fault
        return row + ("        -" if fault is None else f"  {fault:7.2f}")

    def _spared(self) -> str:
        if self.coordinates == self.available:
            return ""
        return f" (of {self.available}: for delta more would cost more than they show)"

    def _rules(self) -> str:
        match self.rules:
            case OneRun(guesses=guesses):
                return f"guess the surest {guesses} at once"
            case AdaptiveRounds(max_jump=jump, chance_share=noise, min_epsilon=start):
                rounds = len(self.rules.round_weights)
                groups = rounds // self.per_coordinate
                order = f", {groups} groups of coordinates one after the other"
                return (
                    f"play {_some(rounds, 'round', 'rounds')}"
                    f"{order if groups > 1 else ''}, with jump {jump:g}, noise "
                    f"{noise:g} and start {start:g}"
                )
            case _:
                assert_never(self.rules)

    def _ceilings(self) -> str:
        at = f"at delta = {self.claim.delta:g}"
        right = f"if every guess were right the bound would be {self.all_right:.3f}"
        if self.true_epsilon is None or self.ceiling is None:
            return (
                f"What limits it: {right}; the training's own epsilon {at} is not "
                "known, as no accountant was asked."
            )
        return (
            f"What limits it: the training's own epsilon is {self.true_epsilon:.3f} "
            f"{at}, no one-run audit with alpha = {self.alpha:g} reliably shows more "
            f"than {self.ceiling:.3f} of it, and {right}."
        )

    def _fault(self) -> str:
        if self.fault is not None:
            return (
                f"What it would catch: noise {ceil(100 * self.fault) / 100:.2f} times "
                f"too small refutes the claim with chance {POWER:g}, if the guesser "
                "measures it."
            )
        cannot = (
            " It CANNOT refute the claim: if every guess were right the bound would be "
            f"{self.all_right:.3f}."
            if self.all_right <= self.claim.epsilon
            else ""
        )
        return (
            "What it would catch: NOTHING. No noise that is up to 32 times too small "
            f"would refute the claim with chance {POWER:g}.{cannot} More coordinates "
            "would, or a larger alpha."
        )


def rehearse(
    design: Design,
    training: TrainingSetup,
    *,
    per_coordinate: int,
    rng: np.random.Generator,
    key: Key | None = None,
) -> Result:
    """Return the result of an audit by a plan's design on simulated training.

    Args:
        design: A plan's.
        training: What is simulated; it need not be what was planned for.
        per_coordinate: Canaries at each coordinate.
        rng: The training's randomness.
        key: The secret of the coins; a new one if left out.

    Example:
        >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
        >>> design = Design(canaries=100, rules=OneRun(guesses=20), claim=claim)
        >>> training = TrainingSetup(steps=10, rate=0.5, noise=0.2)
        >>> rng = np.random.default_rng(1)
        >>> result = rehearse(
        ...     design, training, per_coordinate=1, rng=rng, key=Key(bytes(32))
        ... )
        >>> result.claim_test.refuted  # so little noise
        True
    """
    mechanism = training.mechanism(
        coordinates=design.canaries // per_coordinate, per_coordinate=per_coordinate
    )
    match design.rules:
        case OneRun():
            return audit_one_run(
                mechanism,
                MostLikely(mechanism=mechanism, guesses=fixed_number(design.rules)),
                pairs=mechanism.pairs,
                design=design,
                rng=rng,
                key=key,
            )
        case AdaptiveRounds(min_epsilon=start) as rules:
            return audit_adaptive(
                mechanism,
                AdaptiveMostLikely(mechanism=mechanism, threshold=start, rules=rules),
                pairs=mechanism.pairs,
                design=design,
                rng=rng,
                key=key,
            )
        case other:
            raise InvalidInputError(
                f"plans are for OneRun and AdaptiveRounds, got rules={other!r}"
            )


def _some(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
