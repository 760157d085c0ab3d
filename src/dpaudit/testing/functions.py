"""An audit of a function: does it leak more than it claims?

A function of one value is called many times. A coin for each call decides whether it
gets ``x`` or ``y``; all calls together are one run of a mechanism with one record per
call, and every record is as private as one call is. So the exact one-run bound judges
how many coins a guesser can name from the outputs. For a function of a data set, coins
decide about one record of it, each call is a run of its own, and the runs are judged as
in classic auditing. So are the calls of any function that claims a delta above 0: one
run may leak everything at once with chance delta, calls that share nothing cannot.

The guesser is learned first, on calls with coins of their own: see ``guessers.py``.
Then everything is fixed (which guesser, how many calls, how many guesses), then the
coins of the audit are thrown. Whatever was learned, a true claim is refuted with chance
at most alpha. That holds for every function whose calls are private each by itself; one
whose calls share their randomness is not, and is refuted for it.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, algorithms 1
and 2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.reads import Counts
from dpaudit.explanation import verdict
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.guessers import most_likely
from dpaudit.game.referee import Referee
from dpaudit.game.result import AuditResult, judge
from dpaudit.game.rules import OneRun
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.testing.budgets import Budget, Calls, Seconds, calibrate
from dpaudit.testing.calling import Calling, Neighbours, OneRecord, OneValue, seeded
from dpaudit.testing.choosing import CHANCE, Aim, Choice, choose, graded
from dpaudit.testing.guessers import LEARNERS, LOOKED_AT, Learner, Scorer
from dpaudit.testing.outputs import Table, collect

__all__ = [
    "Budget",
    "Calls",
    "FunctionResult",
    "OneRecord",
    "OneValue",
    "Seconds",
    "audit_function",
]

_PARTS = 3  # of these calls: two are learned from, one judges what was learned
_FEW = 10_000  # calls up to which each part judges in turn


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResult:
    """What an audit of a function shows; printing it says it in three sentences.

    Attributes:
        audit: Verdict and lower bound.
        transcript: Every guess, for the record.
        guesser: What the guesser looked at.
        calls: How many calls were learned from: with ``Calls(calls=...)`` of this
            number and the same key the audit is repeated.
        caught: The epsilon of the least planted leak that would have been caught with
            chance 0.9: of a copy that tells its input as randomised response does.
    """

    audit: AuditResult
    transcript: Transcript
    guesser: str
    calls: int
    caught: float

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; wrongly so with chance at most alpha."""
        return self.audit.claim_test.refuted

    def __str__(self) -> str:
        return f"{self.verdict()} {self.evidence()} {self.strength()}"

    def verdict(self) -> str:
        """Say in one sentence what was found."""
        return verdict(self.audit)

    def evidence(self) -> str:
        """Say what was guessed, and from what."""
        design, read = self.audit.design, self.audit.reading
        right = read.correct if isinstance(read, Counts) else 0
        return (
            f"Of {design.guesses} guesses about {design.canaries} calls {right} were "
            f"right, made from {LOOKED_AT[self.guesser]}."
        )

    def strength(self) -> str:
        """Say what the audit could have caught."""
        return (
            f"A planted leak of epsilon = {ceil(1000 * self.caught) / 1000:g} would be "
            f"caught with chance {CHANCE:g}."
        )


def audit_function(
    function: Callable[..., object],
    *,
    neighbours: Neighbours,
    claim: Guarantee,
    alpha: float = 0.05,
    budget: Budget = Seconds(seconds=2.0),  # noqa: B008 (a frozen value)
    must_catch: float | None = None,
    raising: tuple[type[Exception], ...] = (),
    key: Key | None = None,
) -> FunctionResult:
    """Audit a function.

    Args:
        function: Called with one input; if it has a parameter ``rng``, with a generator
            too. Its outputs may be numbers, arrays, text, tuples of them: whatever can
            be compared.
        neighbours: What it is called with: ``OneValue`` or ``OneRecord``.
        claim: What it is claimed to satisfy, for replacing x by y.
        alpha: Chance of refuting a true claim.
        budget: ``Seconds`` or ``Calls``.
        must_catch: The epsilon of a planted leak that the audit must be able to catch.
        raising: Exceptions that count as outputs; any other leaves the audit.
        key: The secret of all coins, to be used once; a new one if left out.

    Raises:
        InvalidInputError: An output cannot be compared with another.
        VoidAuditError: The budget is too small for the test to fail, or to catch what
            it must.

    Example:
        >>> from dpaudit import PureDP
        >>> from dpaudit.privacy.adjacency import Adjacency
        >>> def answer(bit, rng):
        ...     return bit if rng.random() < 0.9 else 1 - bit
        >>> result = audit_function(
        ...     answer,
        ...     neighbours=OneValue(x=0, y=1),
        ...     claim=PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE),
        ...     budget=Calls(calls=1000),
        ...     key=Key(bytes(32)),
        ... )
        >>> result.refuted, result.guesser
        (True, 'values')
    """
    __tracebackhide__ = True  # pytest shows the function's frames, not ours
    key = Key.generate() if key is None else key
    aim = Aim(
        claim=claim,
        delta=_delta(claim),
        alpha=alpha,
        # At delta = 0 both bounds are one. With delta > 0 one run could leak everything
        # at once with chance delta; calls that share nothing cannot.
        separate=isinstance(neighbours, OneRecord) or _delta(claim) > 0,
        must_catch=must_catch,
    )
    calling = Calling(function=function, neighbours=neighbours, raising=raising)
    with seeded(key):
        table, bits = calibrate(calling, budget, aim, key)
        choice, scorer = _learn(table, bits, aim)
        referee = Referee(_design(choice, aim, calls=len(table)), key)
        coins = Coins(key=key, count=choice.canaries).bits()
        outputs = calling.run(coins, key.generator("audit", 0))
    scores = graded(scorer.scores(collect(outputs, widths=table.widths)))
    referee.submit(*most_likely(scores, guesses=choice.guesses))
    transcript = referee.close()
    audit = judge(
        transcript.reading(),
        design=referee.design,
        commitment=referee.commitment,
        bound=aim.bound,
        not_exercised=(f"other {neighbours}",),
        scores=ScoreSummary.of(scores, coins),
    )
    return FunctionResult(
        audit=audit,
        transcript=transcript,
        guesser=choice.name,
        calls=len(table),
        caught=choice.caught,
    )


def _delta(claim: Guarantee) -> float:
    """Return where the bound is stated: the claim's delta; 1e-5 of a whole curve."""
    epsilons, deltas = claim.points()
    return float(deltas[0]) if len(epsilons) == 1 else 1e-5


def _learn(table: Table, bits: NDArray[Any], aim: Aim) -> tuple[Choice, Scorer]:
    """Choose a kind of guesser on calls it has not seen; learn it on all of them."""
    learned = [(name, _held_out(table, bits, LEARNERS[name])) for name in LEARNERS]
    scores = {name: found for name, found in learned if found is not None}
    judged = len(next(iter(scores.values())))
    choice = choose(scores, bits[-judged:], calls=len(table), aim=aim)
    scorer = LEARNERS[choice.name](table, bits)
    assert scorer is not None  # it was there when there were fewer calls
    return choice, scorer


def _held_out(
    table: Table, bits: NDArray[Any], learner: Learner
) -> NDArray[np.float64] | None:
    """Return scores of calls by guessers that were learned on the other parts."""
    parts = np.array_split(np.arange(len(table)), _PARTS)
    # With many calls one part of them says enough.
    judged = parts if len(table) <= _FEW else parts[-1:]
    found = []
    for part in judged:
        rest = np.delete(np.arange(len(table)), part)
        scorer = learner(table.rows(rest), bits[rest])
        if scorer is None:
            return None
        found.append(scorer.scores(table.rows(part)))
    return np.concatenate(found)


def _design(choice: Choice, aim: Aim, *, calls: int) -> Design:
    return Design(
        canaries=choice.canaries,
        rules=OneRun(guesses=choice.guesses),
        claim=aim.claim,
        delta=aim.delta,
        alpha=aim.alpha,
        setting={
            "guesser": choice.name,
            "calls_learned_from": calls,
            "caught_epsilon": choice.caught,
            # What the classic bound assumes, registered before the coins are thrown.
            **({"runs": "independent"} if aim.separate else {}),
        },
    )
