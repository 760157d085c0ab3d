"""A planned audit of DP-SGD: the choices fixed beforehand, and the expected result.

The plan is a value: it records its assumptions, gives the design that a referee is
opened with, and can be rehearsed on simulated training.
"""

from dataclasses import dataclass, replace
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
from dpaudit.game.text.stages import detects
from dpaudit.game.text.terms import capital
from dpaudit.game.verdict import POWER
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.theory.gap_levels import Estimate

__all__ = ["Plan", "rehearse"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An audit to be made, and its expected result; printing it shows both.

    Attributes:
        training: The training run.
        claim: The claim about it.
        purpose: What the audit is for.
        available: The number of coordinates that could hold canaries.
        coordinates: The number of coordinates that do.
        alpha: Significance level.
        per_coordinate: Canaries at each coordinate.
        rules: The rules of the audit.
        expected: The mean bound, and its spread from run to run.
        true_epsilon: What an accountant proves at the claim's delta; None without one.
        ceiling: The largest bound that any one-run audit reliably shows: the
            accountant's epsilon at delta / alpha; None without an accountant.
        all_right: The bound if every guess were correct.
        fault: By which factor the noise must be too small for the claim to be refuted
            with probability 0.9; None if not even 32 is enough.
        candidates: The audits that it was chosen from, with smaller simulations.
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
        """The total number of canaries."""
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
        """Return the epsilon that half of all runs, of any valid audit, stay below.

        This holds however the audit guesses or adapts. It takes some seconds.

        Args:
            seed: Seed of the simulation.
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
            key: The secret key of the coins; by default a new one.
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
                f"Recommended: {_some(self.canaries, 'canary', 'canaries')}, "
                f"{self.per_coordinate} at each of "
                f"{_some(self.coordinates, 'coordinate', 'coordinates')}"
                f"{self._spared()}; {self._rules()}.",
                self._fault(),
                f"Expected lower bound: epsilon >= {rounded_down(self.expected.mean)} "
                f"± {self.expected.spread:.3f} (standard deviation over runs) at delta "
                f"= {self.claim.delta:g}, with {confidence_text(self.alpha)}, for any "
                f"mechanism (method {self.method}).",
                self._ceilings(),
            ]
        )

    def table(self) -> str:
        """Return a table of the candidates that were compared, as text."""
        for_faults = self.purpose is Purpose.FAULTS
        head = (
            f"Candidates, from smaller simulations (alpha = {self.alpha:g}): canaries "
            f"per coordinate, rules, mean bound at delta = {self.claim.delta:g}"
        )
        if for_faults:
            head += ", smallest detectable factor on the noise (-: above 32)"
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
        return f" of {self.available} (more would cost more in delta than they show)"

    def _rules(self) -> str:
        match self.rules:
            case OneRun(guesses=guesses):
                return f"the {guesses} most confident guesses"
            case AdaptiveRounds():
                rounds = len(self.rules.round_weights)
                groups = rounds // self.per_coordinate
                order = f" over {groups} groups of coordinates" if groups > 1 else ""
                return (
                    f"{_some(rounds, 'adaptive round', 'adaptive rounds')}{order} "
                    "(parameters: plan.rules, --json)"
                )
            case _:
                assert_never(self.rules)

    def _ceilings(self) -> str:
        best = f"with every guess correct the bound would be {self.all_right:.3f}"
        if self.true_epsilon is None or self.ceiling is None:
            return f"Limits: {best}; what an accountant proves is not known."
        return (
            f"Limits: the accountant proves epsilon = {self.true_epsilon:.3f} at delta "
            f"= {self.claim.delta:g}; no one-run audit with alpha = {self.alpha:g} "
            f"reliably shows more than {self.ceiling:.3f} of it; {best}."
        )

    def _fault(self) -> str:
        if self.fault is not None:
            return (
                f"{capital(detects(self.fault))}, if the guesser uses the scale of "
                "the noise."
            )
        cannot = (
            " It CANNOT refute the claim: with every guess correct the bound would be "
            f"{self.all_right:.3f}."
            if self.all_right <= self.claim.epsilon
            else ""
        )
        return (
            "Power: NONE. Not even noise 32x too small would refute the claim with "
            f"probability {POWER:g}.{cannot} Use more coordinates or a larger alpha."
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
        design: The plan's design.
        training: The simulated training; it may differ from the planned one.
        per_coordinate: Canaries at each coordinate.
        rng: The training's randomness.
        key: The secret key of the coins; by default a new one.

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
