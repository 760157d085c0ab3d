"""Audit a function: does it leak more than it claims?

A function is called many times. A coin flip for each call decides whether it gets
``x`` or ``y``, and a guesser names coins from the outputs. Which test is used depends
on the claim.

- *Pure claims, functions of one value*: all calls together are one run of a mechanism
  with one record per call, and every record is as private as one call. So the exact
  one-run bound applies to a fixed number of guesses. It assumes nothing.
- *Pure claims, functions of a data set*: the coin decides about one record of it, and
  each call is a run of its own, as in classic auditing.
- *All other claims* (delta above 0, zCDP, Renyi, Gaussian, curves): one run may leak
  everything at once with probability delta; calls that share nothing cannot. So each
  call is a run of its own, whose output alone decides whether it is guessed, and the
  whole claim is tested at once (``bounds/whole_claim.py``). Calls must be independent
  and alike; bets (``sequential.py``) need neither.

First the guesser is learned, on calls with separate coins: see ``guessers.py``. Then
everything is fixed (the guesser, the numbers of calls and guesses), then the coins of
the audit are flipped. For wide outputs the most informative places are chosen from the
calls that are learned from: see ``feature_selection.py``. Whatever was learned, a true
claim is refuted with probability at most alpha. That holds for every function whose
calls are each private by itself; calls that share their randomness are not, and the
function is refuted for it.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, algorithms 1
and 2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidRunError
from dpaudit.explanation import verdict as verdict_sentence
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.findings import Status
from dpaudit.game.key_use import judge_once, transcript_digest
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result, effect_seen, judge
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.setting import Setting
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import POWER, Verdict
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.testing.calling import Calling, Neighbours, OneRecord, OneValue, seeded
from dpaudit.testing.feature_selection import (
    SelectedFeatures,
    most_informative,
    narrow,
    unseen,
)
from dpaudit.testing.features import WIDEST, Bits, FeatureTable, collect, joined
from dpaudit.testing.guesser_selection import (
    Aim,
    Budget,
    Calls,
    Choice,
    Seconds,
    calibrate,
    choose,
    graded,
)
from dpaudit.testing.guessers import FEATURES_USED, LEARNERS, Learner, Scorer

__all__ = [
    "Budget",
    "Calls",
    "FunctionResult",
    "OneRecord",
    "OneValue",
    "Seconds",
    "audit_function",
]

_NO_EFFECT = (
    "The guesses are no better than chance: these inputs may make no difference to the "
    "function, so choose a pair that does."
)
_PARTS = 3  # of the calls learned from: two train a guesser, one evaluates it
_MOST_CALLS_CROSS_VALIDATED = 10_000  # up to so many, each part evaluates in turn
_UNEVEN = 4.0  # standard deviations of the mean rank of guesses, if calls are alike
_VALUES_AT_ONCE = 4_000_000  # values of wide outputs held in memory at once


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResult:
    """The result of an audit of a function; printing it states the verdict first.

    Attributes:
        audit: Verdict and lower bound.
        transcript: Every guess, for the record.
        guesser: The kind of guesser, a key of ``LEARNERS``.
        calls: How many calls were audited; ``Calls(calls=...)`` with this number and
            the same key repeats the audit.
        detectable_epsilon: The epsilon of the least planted leak that the audit would
            detect with probability 0.9: in a copy that reveals its input in one place
            of its output, as randomised response does.
        unseen: The parts of outputs that were not inspected, each in a few words; a
            leak there would not be detected.
    """

    audit: Result
    transcript: Transcript
    guesser: str
    calls: int
    detectable_epsilon: float
    unseen: tuple[str, ...] = ()

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; a true one with probability at most alpha."""
        return self.verdict is Verdict.CLAIM_REFUTED

    @property
    def verdict(self) -> Verdict:
        """The verdict of the audit."""
        return self.audit.verdict

    @property
    def reason(self) -> str:
        """Why the run is invalid or inconclusive; "" otherwise."""
        return self.audit.reason

    def __str__(self) -> str:
        return " ".join(self.sentences())

    def sentences(self) -> tuple[str, ...]:
        """Return the report: verdict, what was not inspected, guesses and power."""
        return (
            self.sentence(),
            f"Not checked: {'; '.join(self.audit.not_exercised)}.",
            self.evidence(),
            *([] if self.verdict is Verdict.INVALID_RUN else [self.strength()]),
            *([_NO_EFFECT] if self._blind else []),
        )

    @property
    def _blind(self) -> bool:
        """Whether guesses were no better than chance, so that no effect was seen."""
        seen = effect_seen(self.audit.reading, design=self.audit.design)
        return seen.status is not Status.PASSED

    def sentence(self) -> str:
        """Return the result in a sentence, the verdict first."""
        return verdict_sentence(self.audit)

    def evidence(self) -> str:
        """Return in a sentence how many guesses were correct, and their features."""
        right, made = self.audit.reading.correct_and_guesses()
        return (
            f"Of {made} guesses about {self.audit.design.canaries} calls {right} were "
            f"correct, made from {FEATURES_USED[self.guesser]}."
        )

    def strength(self) -> str:
        """Return in words which leak the audit would detect in what it inspected."""
        where = " that was checked" if self.unseen else ""
        least = ceil(1000 * self.detectable_epsilon) / 1000
        return (
            f"A planted leak of epsilon = {least:g} would be "
            f"detected with probability {POWER:g} if it shows in one place of the "
            f"output{where}: a value there that reveals the input as often as "
            "randomised response of that epsilon does. Noise that is too small shows "
            "less: try a copy with less noise."
        )


def audit_function(  # noqa: PLR0913 (each is one thing that a test may fix)
    function: Callable[..., object],
    *,
    neighbours: Neighbours,
    claim: Guarantee,
    alpha: float = 0.05,
    budget: Budget = Seconds(seconds=2.0),  # noqa: B008 (a frozen value)
    must_catch: float | None = None,
    raising: tuple[type[Exception], ...] = (),
    allow_unseen: bool = False,
    key: Key | None = None,
) -> FunctionResult:
    """Audit the privacy claim of a function.

    Args:
        function: Called with one input; if it has a parameter ``rng``, with a generator
            too. Its outputs may be numbers, arrays, text, tuples of them: anything that
            can be compared.
        neighbours: The inputs it is called with: ``OneValue`` or ``OneRecord``.
        claim: What it is claimed to satisfy, for replacing x by y.
        alpha: Probability of refuting a true claim.
        budget: ``Seconds`` or ``Calls``.
        must_catch: The epsilon of a planted leak that the audit must be able to detect.
        raising: Exceptions that count as outputs; any other is raised.
        allow_unseen: Continue if an output has more places than are inspected; the
            result names them.
        key: The secret of all coins, to be used once; a new one if left out.

    Raises:
        InvalidInputError: An output cannot be compared with another, or has more places
            than are inspected.
        InvalidRunError: The budget is too small for the test to fail, or to detect the
            required leak; or a leak is required and some places are not inspected; or
            calls are seen not to be alike, and the test assumes it.

    Example:
        >>> from dpaudit import PureDP
        >>> from dpaudit.privacy.guarantees import Adjacency
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
        separate=isinstance(neighbours, OneRecord) or _delta(claim) > 0,
        must_catch=must_catch,
    )
    calling = Calling(
        function=function,
        neighbours=neighbours,
        raising=raising,
        allow_unseen=allow_unseen,
    )
    with seeded(key):
        table, bits = calibrate(calling, budget, aim, key)
        _must_see(table, aim)
        choice, places, scorer = _learn(table, bits, aim)
        referee = Referee(_design(choice, aim, learned=len(table)), key)
        coins = Coins(key=key, count=choice.canaries).bits()
        outputs = _outputs(calling, coins, key, widths=table.widths, places=places)
    scores = scorer.scores(outputs)
    if choice.event is not None:
        _must_be_alike(choice.event.guesses(scores))
    not_seen = unseen(table, outputs)
    referee.submit(*choice.guesses(scores))
    transcript = referee.close()
    judge_once(key, referee.commitment, referee.design, transcript_digest(transcript))
    audit = judge(
        transcript.reading(),
        design=referee.design,
        commitment=referee.commitment,
        not_exercised=(f"other {neighbours}", *not_seen),
        scores=ScoreSummary.of(graded(scores), coins),
    )
    return FunctionResult(
        audit=audit,
        transcript=transcript,
        guesser=choice.name,
        calls=choice.canaries,
        detectable_epsilon=choice.detectable_epsilon,
        unseen=not_seen,
    )


def _must_see(table: FeatureTable, aim: Aim) -> None:
    """Refuse ``must_catch`` if a leak could hide in parts that are not inspected."""
    hidden = unseen(table)
    if aim.must_catch is not None and hidden:
        raise InvalidRunError(
            f"a leak of epsilon = {aim.must_catch:g} must be caught, and could hide in "
            f"what is not read: {'; '.join(hidden)}; return the values "
            "themselves, fewer of them if they are too many, or leave must_catch out"
        )


def _must_be_alike(guesses: NDArray[np.int8]) -> None:
    """Refuse calls among which guesses are not spread evenly, by their ranks.

    The test of a whole claim holds for calls that are alike; a budget that is spent or
    a state that builds up makes them differ.
    """
    n, made = len(guesses), np.flatnonzero(guesses)
    if not 0 < len(made) < n:
        return
    spread = sqrt((n + 1) * (n - len(made)) / (12 * len(made)))
    if abs(made.mean() - (n - 1) / 2) > _UNEVEN * spread:
        raise InvalidRunError(
            "calls are not alike: those whose outputs tell the inputs apart come "
            "mostly early or mostly late, as when a budget is spent; make each call "
            "start anew, or use audit_sequentially, which does not assume it"
        )


def _outputs(
    calling: Calling,
    coins: Bits,
    key: Key,
    *,
    widths: tuple[int, int],
    places: SelectedFeatures,
) -> FeatureTable:
    """Make the calls of the audit; of wide outputs keep only the chosen places."""
    __tracebackhide__ = True
    rng = key.generator("audit", 0)
    wide = max(widths) > WIDEST
    size = max(1, _VALUES_AT_ONCE // sum(widths)) if wide else len(coins)
    batches = [coins[i : i + size] for i in range(0, len(coins), size)]
    made = (collect(calling.run(batch, rng), widths=widths) for batch in batches)
    return joined([narrow(table, places) for table in made])


def _delta(claim: Guarantee) -> float:
    """Return the delta of the bound: that of the claim, or 1e-5 for a whole curve."""
    epsilons, deltas = claim.points()
    return float(deltas[0]) if len(epsilons) == 1 else 1e-5


def _learn(
    table: FeatureTable, bits: Bits, aim: Aim
) -> tuple[Choice, SelectedFeatures, Scorer]:
    """Choose a kind of guesser by held-out calls; learn it on all of them."""
    judged = _in_two(table) if aim.whole else _judged(table)
    parts = [_Part.of(table, bits, part) for part in judged]
    learned = [(name, _held_out(parts, LEARNERS[name])) for name in LEARNERS]
    scores = {name: held for name, held in learned if held is not None}
    held_out = bits[np.concatenate(judged)]
    choice = choose(scores, held_out, calls=aim.audited(len(table)), aim=aim)
    places = most_informative(table, bits, np.arange(len(table)))
    scorer = LEARNERS[choice.name](narrow(table, places), bits)
    assert scorer is not None  # fewer calls were enough to learn it
    return choice, places, scorer


def _in_two(table: FeatureTable) -> list[NDArray[np.int64]]:
    """Return parts of which each evaluates guessers learned on the others; all do.

    Events may be rare, so no call is left out.
    """
    many = len(table) > _MOST_CALLS_CROSS_VALIDATED
    return np.array_split(np.arange(len(table)), 2 if many else _PARTS)


def _judged(table: FeatureTable) -> list[NDArray[np.int64]]:
    """Return the parts that evaluate guessers learned on the other parts."""
    parts = np.array_split(np.arange(len(table)), _PARTS)
    # With many calls one part is enough.
    return parts if len(table) <= _MOST_CALLS_CROSS_VALIDATED else parts[-1:]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """Held-out calls and the other calls, at the places chosen by the others."""

    others: FeatureTable
    bits: Bits
    judging: FeatureTable

    @classmethod
    def of(cls, table: FeatureTable, bits: Bits, part: NDArray[np.int64]) -> "_Part":
        rest = np.delete(np.arange(len(table)), part)
        seen = narrow(table, most_informative(table, bits, rest))
        return cls(others=seen.rows(rest), bits=bits[rest], judging=seen.rows(part))


def _held_out(parts: list[_Part], learner: Learner) -> NDArray[np.float64] | None:
    """Return the scores of held-out calls by guessers learned on the other parts."""
    held_out = []
    for part in parts:
        scorer = learner(part.others, part.bits)
        if scorer is None:
            return None
        held_out.append(scorer.scores(part.judging))
    return np.concatenate(held_out)


def _design(choice: Choice, aim: Aim, *, learned: int) -> Design:
    return Design(
        canaries=choice.canaries,
        rules=choice.rules,
        claim=aim.claim,
        delta=choice.delta,
        alpha=aim.alpha,
        setting=Setting(
            notes={
                "guesser": choice.name,
                "calls_learned_from": learned,
                "detectable_epsilon": choice.detectable_epsilon,
            }
        ),
    )
