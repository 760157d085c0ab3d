"""Audit a function until its claim is refuted, or the budget is spent.

Bets against the claim (``betting.py``) may be stopped at any time, so a gross fault is
found after a few hundred calls, and evidence may be collected over many runs
(``nightly.py``). Several pairs of neighbouring inputs are bet on at once. All are
called equally often at first; then, in rounds, those whose wealth is expected to grow
fastest get more calls. The claim is refuted when the mean of their wealths, the
*e-value*, reaches 1 / alpha, which has probability at most alpha if it is true.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, log, sqrt
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, final

import numpy as np

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.verdict import POWER, Verdict
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.testing.betting import FIRST_CALLS, Bet, Bettor
from dpaudit.testing.calling import Calling, Neighbours, seeded
from dpaudit.testing.events import divergence
from dpaudit.testing.features import read
from dpaudit.testing.guesser_selection import Budget, Calls, Seconds
from dpaudit.testing.guessers import FEATURES_USED
from dpaudit.testing.nightly import Epoch, Nightly, binding_of

__all__ = ["Pair", "PairEvidence", "SequentialResult", "audit_sequentially"]

_FIRST_CALLS = 200  # of every pair: half of them are learned from only
_KEPT = 1 / 3  # share of the pairs that go on to the next round
_LEAST_KEPT = 2
_MORE_CALLS = 1.5  # times as many in the next round
_MOST_CALLS = 4000  # of a pair in a round
_LEARNING_LOSS = 0.8  # share of the calls that count for what would be detected
_MOST_LIKELY = 1.2816  # standard deviations: power 0.9


class Pair(NamedTuple):
    """A pair of neighbouring inputs.

    Attributes:
        label: What is particular about it, in a few words.
        neighbours: The inputs.
        code: Python code that makes them, ``x`` and ``y``; "" if none is known.
    """

    label: str
    neighbours: Neighbours
    code: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PairEvidence:
    """The evidence of one pair.

    Attributes:
        label: What is particular about it.
        calls: Calls with it, in all runs.
        log_e_value: The log of its wealth, which began with 1.
    """

    label: str
    calls: int
    log_e_value: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialResult:
    """The result of a sequential audit; printing it states the verdict first.

    Attributes:
        claim: The claim.
        alpha: Probability of refuting a true claim; of the epoch if there are several.
        pairs: The evidence of every pair, the strongest first.
        calls: Calls in this run.
        guesser: The kind of guesser that bet on the first pair; "" if none did.
        code: Code that makes the inputs of the first pair.
        detectable_epsilon: The epsilon of the least planted leak, in any one pair, that
            as many calls as the least-called pair had detect with probability 0.9;
            infinite if they detect none.
        epoch: The epoch that evidence is collected in; None without a state.
    """

    claim: Guarantee
    alpha: float
    pairs: tuple[PairEvidence, ...]
    calls: int
    guesser: str
    code: str
    detectable_epsilon: float
    epoch: Epoch | None = None

    @property
    def log_e_value(self) -> float:
        """The log of the e-value: the mean of the wealths of all pairs."""
        logs = [pair.log_e_value for pair in self.pairs]
        return float(np.logaddexp.reduce(logs)) - log(len(logs))

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted, in this run or an earlier one of the epoch."""
        return self.log_e_value >= -log(self.alpha) or (
            self.epoch is not None and self.epoch.refuted
        )

    @property
    def verdict(self) -> Verdict:
        """The verdict: inconclusive if no leak would have been detected."""
        if self.refuted:
            return Verdict.CLAIM_REFUTED
        if self.detectable_epsilon == inf:
            return Verdict.INCONCLUSIVE
        return Verdict.NO_VIOLATION_DETECTED

    def __str__(self) -> str:
        return " ".join(self.sentences())

    def sentences(self) -> tuple[str, ...]:
        """Return the report: verdict, evidence, what would be detected, the epoch."""
        return (
            self._sentence(),
            self._evidence(),
            *([] if self.refuted else [self._strength()]),
            *(self.epoch.sentences() if self.epoch is not None else []),
        )

    def _sentence(self) -> str:
        match self.verdict:
            case Verdict.CLAIM_REFUTED:
                return (
                    f"Claim refuted: {self.claim} (significance level {self.alpha:g})."
                )
            case Verdict.INCONCLUSIVE:
                return f"Inconclusive: too few calls to refute {self.claim}."
            case _:
                return f"No violation detected. This does not prove {self.claim}."

    def _evidence(self) -> str:
        first = self.pairs[0]
        many = f" over {len(self.pairs)} pairs of inputs" if len(self.pairs) > 1 else ""
        used = f", from {FEATURES_USED[self.guesser]}" if self.guesser else ""
        return (
            f"E-value {_power_of_ten(self.log_e_value)}{many}; "
            f"{1 / self.alpha:.4g} refutes. Strongest pair: {first.label} "
            f"({_power_of_ten(first.log_e_value)} in {first.calls} calls{used}). "
            f"{self.calls} calls in this run."
        )

    def _strength(self) -> str:
        least = ceil(1000 * self.detectable_epsilon) / 1000 if self._detects else 0.0
        where = "in one of these pairs" if len(self.pairs) > 1 else "for this pair"
        if not self._detects:
            return "No leak would be detected reliably: allow more calls."
        return (
            f"A planted leak of epsilon = {least:g} {where} would be detected with "
            f"probability {POWER:g} if it shows in one place of the output. Not "
            "checked: other inputs."
        )

    @property
    def _detects(self) -> bool:
        return self.detectable_epsilon < inf


def audit_sequentially(  # noqa: PLR0913 (each is one thing that a test may fix)
    function: Callable[..., object],
    *,
    pairs: Sequence[Pair],
    claim: Guarantee,
    alpha: float = 0.05,
    budget: Budget = Seconds(seconds=2.0),  # noqa: B008 (a frozen value)
    raising: tuple[type[Exception], ...] = (),
    allow_unseen: bool = False,
    state: str | Path | None = None,
    key: Key | None = None,
) -> SequentialResult:
    """Audit a function until its claim is refuted or the budget is spent.

    Args:
        function: Called with one input; if it has a parameter ``rng``, with a generator
            too.
        pairs: Pairs of neighbouring inputs.
        claim: What the function is claimed to satisfy for each of them.
        alpha: Probability of ever refuting a true claim: in this run, or with a state
            in all runs together.
        budget: ``Seconds`` or ``Calls`` of this run.
        raising: Exceptions that count as outputs; any other is raised.
        allow_unseen: Continue if an output has more places than are inspected.
        state: A folder in which evidence is kept from run to run, for this function
            alone; None to begin anew.
        key: The secret of this run's coins; a new one if left out.

    Example:
        >>> from dpaudit import PureDP
        >>> from dpaudit.testing.calling import OneValue
        >>> def answer(bit, rng):
        ...     return bit if rng.random() < 0.9 else 1 - bit
        >>> result = audit_sequentially(
        ...     answer,
        ...     pairs=[Pair("0 and 1", OneValue(x=0, y=1))],
        ...     claim=PureDP(epsilon=1.0),
        ...     alpha=0.001,
        ...     key=Key(bytes(32)),
        ... )
        >>> result.refuted, result.calls < 1000
        (True, True)
    """
    __tracebackhide__ = True
    _validate.error_level("alpha", alpha)
    pairs = _checked(pairs)
    key = Key.generate() if key is None else key
    bettors = [
        Bettor(
            Calling(
                function=function,
                neighbours=pair.neighbours,
                raising=raising,
                allow_unseen=allow_unseen,
            ),
            claim,
        )
        for pair in pairs
    ]
    labels = [pair.label for pair in pairs]
    if state is None:
        with seeded(key), progress_note("betting against the claim"):
            _play(bettors, budget, alpha, key)
        made = sum(bettor.calls for bettor in bettors)
        return _result(pairs, bettors, claim, alpha, calls=made, epoch=None)
    bound_to = binding_of(function, claim, [_identity(pair) for pair in pairs])
    named = dict(zip(labels, bettors, strict=True))
    with Nightly.open(Path(state), binding=bound_to, alpha=alpha) as nightly:
        nightly.restore(named)
        key, level = nightly.key_of_run(key), nightly.epoch.alpha
        before = sum(bettor.calls for bettor in bettors)
        if not nightly.epoch.refuted:
            try:
                with seeded(key), progress_note("betting against the claim"):
                    _play(bettors, budget, level, key)
            finally:
                # Also if the run breaks off: no evidence may be forgotten.
                nightly.keep(named, level=level)
        made = sum(bettor.calls for bettor in bettors) - before
        return _result(pairs, bettors, claim, level, calls=made, epoch=nightly.epoch)


def _identity(pair: Pair) -> str:
    """Return a text that differs for other inputs, as far as they can be compared."""
    try:
        codes = [read(pair.neighbours.input(bit)).whole for bit in (0, 1)]
    except InvalidInputError:
        codes = []
    return f"{pair.label} {codes}"


def _checked(pairs: Sequence[Pair]) -> Sequence[Pair]:
    labels = [pair.label for pair in pairs]
    if not labels:
        raise InvalidInputError("pairs must hold at least one pair of inputs")
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise InvalidInputError(
            f"labels must differ, got {sorted(twice)[0]!r} more than once"
        )
    return pairs


def _play(bettors: list[Bettor], budget: Budget, alpha: float, key: Key) -> None:
    """Bet in rounds until the mean wealth reaches 1 / alpha or the budget is spent."""
    __tracebackhide__ = True
    start, made = perf_counter(), 0
    coins, rng = key.generator("sequential coins", 0), key.generator("audit", 0)
    live, size = list(bettors), _FIRST_CALLS
    while True:
        for bettor in live:
            for calls in bettor.run(size, coins, rng):
                made += calls
                if _mean_log_wealth(bettors) >= -log(alpha):
                    return
                if _spent(budget, made, perf_counter() - start):
                    return
        live.sort(key=lambda each: (each.growth, each.log_wealth), reverse=True)
        live = live[: max(_LEAST_KEPT, ceil(len(live) * _KEPT))]
        size = min(int(size * _MORE_CALLS), _MOST_CALLS)


def _spent(budget: Budget, calls: int, seconds: float) -> bool:
    match budget:
        case Calls(calls=most):
            return calls >= most
        case Seconds(seconds=most):
            return seconds >= most


def _mean_log_wealth(bettors: list[Bettor]) -> float:
    logs = [bettor.log_wealth for bettor in bettors]
    return float(np.logaddexp.reduce(logs)) - log(len(logs))


def _result(
    pairs: Sequence[Pair],
    bettors: list[Bettor],
    claim: Guarantee,
    alpha: float,
    *,
    calls: int,
    epoch: Epoch | None,
) -> SequentialResult:
    order = sorted(range(len(pairs)), key=lambda i: -bettors[i].log_wealth)
    best = bettors[order[0]]
    return SequentialResult(
        claim=claim,
        alpha=alpha,
        pairs=tuple(
            PairEvidence(
                label=pairs[i].label,
                calls=bettors[i].calls,
                log_e_value=bettors[i].log_wealth,
            )
            for i in order
        ),
        calls=calls,
        guesser="" if best.guesser is None else best.guesser.event.name,
        code=pairs[order[0]].code,
        detectable_epsilon=_detectable(
            claim, calls=min(b.calls for b in bettors), alpha=alpha / len(pairs)
        ),
        epoch=epoch,
    )


def _detectable(claim: Guarantee, *, calls: int, alpha: float) -> float:
    """Return the epsilon of a planted leak whose wealth reaches 1 / alpha.

    Log-wealth has about the variance of twice its mean.
    """
    low, high = 0.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2
        accuracy = 1 / (1 + exp(-middle))
        _, line = divergence(accuracy, 1 - accuracy, claim, one_sided=False)
        bet = Bet.on(line, correct=accuracy, wrong=1 - accuracy)
        growth = bet.growth(correct=accuracy, wrong=1 - accuracy)
        mean = _LEARNING_LOSS * max(0, calls - FIRST_CALLS) * growth
        reached = mean - _MOST_LIKELY * sqrt(2 * mean) >= -log(alpha)
        low, high = (low, middle) if reached else (middle, high)
    return high if high < 39 else inf


def _power_of_ten(log_value: float) -> str:
    return (
        f"{exp(log_value):.3g}"
        if abs(log_value) < 20
        else f"1e{log_value / log(10):+.0f}"
    )
