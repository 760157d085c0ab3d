"""The result of an audit: what was found, about which claim, and what it rests on."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log
from typing import Any, final

from dpaudit import _validate
from dpaudit._codec import Document
from dpaudit.bounds.bound import ClaimTest, GameBound, LowerBound
from dpaudit.bounds.methods import KNOWN, test_claim
from dpaudit.bounds.reads import Counts, Reading
from dpaudit.bounds.strength import accuracy_caught
from dpaudit.errors import InvalidInputError, VoidAuditError, on_one_line
from dpaudit.game.design import Commitment, Design
from dpaudit.game.notebook import html_fragment
from dpaudit.game.rules import JudgingBound, Rules
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import (
    SURE,
    Control,
    Verdict,
    better_than_chance,
    verdict_of,
)
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.privacy.guarantees import PureDP
from dpaudit.stats.binomial import log_odds_limit

__all__ = [
    "AuditResult",
    "bound_of",
    "check_method",
    "check_reading",
    "conclude",
    "effect_seen",
    "in_notebook",
    "is_own_bound",
    "judge",
    "opening",
]


_CHANCE = 0.9  # with which a fault counts as caught


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuditResult(Document):
    """What one audit shows; printing it gives one sentence.

    Attributes:
        design: What was fixed beforehand.
        commitment: The hash that was published beforehand; None if the coins were not
            derived from a key, so that none can show that they came first.
        reading: What was guessed, as the bound reads it.
        bound: Lower bound on epsilon at the design's delta.
        ceiling: The bound if every guess had been right: no audit that guessed as
            much can show more.
        claim_test: Verdict on the claim.
        accuracy_caught: How often independent guesses would have had to be right to
            refute the claim with chance 0.9; None if not even all right would have, or
            if the rules do not count guesses.
        not_exercised: Parts of the mechanism that this audit did not run through.
        controls: What was looked at to see whether there was anything to see.
        scores: What the guesser's scores looked like, if they were kept; for pictures.
    """

    design: Design
    commitment: Commitment | None
    reading: Reading
    bound: LowerBound
    ceiling: float
    claim_test: ClaimTest
    accuracy_caught: float | None
    not_exercised: tuple[str, ...]
    controls: tuple[Control, ...] = ()
    scores: ScoreSummary | None = None

    form = "dpaudit.result.1"
    derived = ("verdict",)

    def __post_init__(self) -> None:
        for name, value in (
            ("epsilon_lower", self.bound.epsilon_lower),
            ("ceiling", self.ceiling),
        ):
            if not value >= 0:
                raise InvalidInputError(f"{name} must be >= 0, got {name}={value!r}")
        if self.accuracy_caught is not None:
            _validate.probability("accuracy_caught", self.accuracy_caught)

    @property
    def verdict(self) -> Verdict:
        """How the audit ended, in one word."""
        return self._ended()[0]

    @property
    def reason(self) -> str:
        """Why the audit is void or inconclusive; "" otherwise."""
        return self._ended()[1]

    @property
    def could_refute(self) -> bool:
        """Whether the claim could have been refuted, had guesses been right."""
        if isinstance(self.reading, Counts):
            return self.claim_test.refuted or self.accuracy_caught is not None
        claimed = self.claim_test.claim.epsilon_at(self.design.bound_delta)
        return self.ceiling >= claimed

    def _ended(self) -> tuple[Verdict, str]:
        return verdict_of(
            refuted=self.claim_test.refuted,
            could=self.could_refute,
            controls=self.controls,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AuditResult) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __str__(self) -> str:
        said = opening(self.verdict, self.reason)
        return said if self.verdict is Verdict.VOID else f"{said} {self.details()}"

    def details(self) -> str:
        """Return what was shown of the claim, in one sentence."""
        right, made = self.reading.right_and_made()
        said = (
            f"{self.claim_test}: {self.bound}, from {right} of {made} guesses right "
            f"about {self.design.canaries} canaries ({self._most()} "
            f"{self.ceiling:.3g}{self._caught()}), against {self.design.threat_model}"
            f"{self._limits()}."
        )
        return said[0].upper() + said[1:]

    def _repr_html_(self) -> str:
        return in_notebook(
            self, test=self.claim_test, verdict=self.verdict, reason=self.reason
        )

    def _most(self) -> str:
        """Say what the ceiling is the ceiling of."""
        if self.reading.tally:
            return "all right would have shown"
        return "no audit with so many guesses shows more than"

    def _caught(self) -> str:
        """Say what would have been caught, where nothing was."""
        if self.claim_test.refuted or not isinstance(self.reading, Counts):
            return ""
        if self.accuracy_caught is None:
            return ", too little to refute the claim"
        return (
            f"; {ceil(1000 * self.accuracy_caught) / 10:g} % right would have refuted "
            f"the claim with chance {_CHANCE:g}"
        )

    def _limits(self) -> str:
        """Say what the audit did not run through, and what nobody can check."""
        missed = "; not exercised: " + on_one_line(", ".join(self.not_exercised))
        uncommitted = "" if self.commitment else "; the coins were not committed"
        return (missed if self.not_exercised else "") + uncommitted


def conclude(
    transcript: Transcript,
    *,
    commitment: Commitment,
    not_exercised: tuple[str, ...] = (),
    controls: tuple[Control, ...] = (),
    scores: ScoreSummary | None = None,
) -> AuditResult:
    """Judge a transcript by the bound that belongs to its rules.

    Args:
        transcript: What the referee recorded.
        commitment: The commitment that the game was opened with.
        not_exercised: Parts of the mechanism that the audit did not run through.
        controls: What was looked at to see whether there was anything to see.
        scores: What the guesser's scores looked like.
    """
    return judge(
        transcript.reading(),
        design=transcript.design,
        commitment=commitment,
        not_exercised=not_exercised,
        controls=controls,
        scores=scores,
    )


def judge(
    reading: Reading,
    *,
    design: Design,
    commitment: Commitment | None,
    bound: JudgingBound | None = None,
    not_exercised: tuple[str, ...] = (),
    controls: tuple[Control, ...] = (),
    scores: ScoreSummary | None = None,
) -> AuditResult:
    """Judge what was read of a game that was played by the design's rules.

    The bound is wrong with chance at most alpha, and so is a refutation. Under rules
    that count (``OneRun``, ``Classes`` and their adaptive forms) both read one tail of
    one transcript, so that even one of the two is wrong with no larger chance.

    Args:
        reading: What was guessed.
        design: What was fixed beforehand.
        commitment: The commitment that the game was opened with.
        bound: Another bound than that of the rules, if it is valid for the game.
        not_exercised: Parts of the mechanism that the audit did not run through.
        controls: What was looked at to see whether there was anything to see:
            ``effect_seen`` where nothing else shows that canaries went in.
        scores: What the guesser's scores looked like.

    Raises:
        VoidAuditError: The reading is not of a game by these rules, or the bound is
            known not to hold for it.
    """
    check_reading(reading, design)
    bound = design.rules.bound() if bound is None else bound
    found = _found if reading.tally else _found.__wrapped__
    lower, ceiling, claim_test, caught = found(
        bound, design.rules.bound(), reading, design
    )
    check_method(lower.method, design.rules)
    return AuditResult(
        design=design,
        commitment=commitment,
        reading=reading,
        bound=lower,
        ceiling=ceiling,
        claim_test=claim_test,
        accuracy_caught=caught,
        not_exercised=not_exercised,
        controls=controls,
        scores=scores,
    )


def effect_seen(reading: Reading, *, design: Design) -> Control:
    """Return whether guesses show by themselves that canaries went in.

    Guesses about a program that no canary ever reached are right by chance alone, and
    so are those of a guesser that cannot tell; neither tests the claim.

    Example:
        >>> from dpaudit import OneRun
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> lucky = Counts(canaries=100, guesses=100, correct=58)
        >>> print(effect_seen(lucky, design=design).spoils)
        inconclusive
    """
    nothing = PureDP(epsilon=0.0, adjacency=design.claim.adjacency)
    bound = design.rules.bound()
    return better_than_chance(test_claim(nothing, reading, alpha=SURE, bound=bound))


def opening(verdict: Verdict, reason: str) -> str:
    """Return the first sentence about an audit: the word, and why if it is no answer.

    Example:
        >>> opening(Verdict.VOID, "no canary arrived")
        'Void: no canary arrived. Nothing is said about the claim.'
    """
    said = (
        verdict[0].upper() + verdict[1:] + (f": {on_one_line(reason)}" * bool(reason))
    )
    silent = " Nothing is said about the claim." * (verdict is Verdict.VOID)
    return f"{said}.{silent}"


def in_notebook(
    audit: AuditResult, *, test: ClaimTest, verdict: Verdict, reason: str
) -> str:
    """Return what a notebook shows of an audit, or of a verdict that rests on it."""
    return html_fragment(
        verdict=verdict,
        said=opening(verdict, reason),
        controls=audit.controls,
        test=test,
        bound=audit.bound,
        ceiling=audit.ceiling,
        score=audit.reading.right_and_made(),
        canaries=audit.design.canaries,
        threat_model=audit.design.threat_model,
    )


# What counts say is a short table; whoever plays many games looks it up.
@lru_cache(maxsize=4096)
def _found(
    bound: JudgingBound,
    tester: GameBound[Any],
    reading: Reading,
    design: Design,
) -> tuple[LowerBound, float, ClaimTest, float | None]:
    """Return the lower bound, its ceiling, the verdict, and what would be caught."""
    claim, delta, alpha = design.claim, design.bound_delta, design.alpha
    return (
        bound.epsilon_lower(reading, delta=delta, alpha=alpha),
        _ceiling(bound, reading, delta=delta, alpha=alpha),
        test_claim(claim, reading, alpha=alpha, bound=tester),
        _accuracy_caught(tester, reading, claim, alpha),
    )


def check_reading(reading: Reading, design: Design) -> None:
    """Refuse a reading that no game by a design can have.

    Raises:
        VoidAuditError: It is of another game, kind, size or weight than the rules give.

    Example:
        >>> from dpaudit import AdaptiveCount, PureDP
        >>> rules = AdaptiveCount(guesses=2)
        >>> design = Design(canaries=9, rules=rules, claim=PureDP(epsilon=1.0))
        >>> check_reading(Counts(canaries=9, guesses=2, correct=1), design)
        Traceback (most recent call last):
        dpaudit.errors.VoidAuditError: by AdaptiveCount coins are revealed between \
guesses, and the reading is of guesses made all at once
    """
    _check_game(reading, design.rules)
    rules, (_, made) = design.rules, reading.right_and_made()
    number = made == design.guesses or not rules.fixed
    if reading.canaries != design.canaries or not number:
        raise VoidAuditError(
            f"{made} guesses about {reading.canaries} canaries were not made by a "
            f"design of {design.guesses} guesses about {design.canaries}"
        )
    rules.check_reading(reading)


def _check_game(reading: Reading, rules: Rules) -> None:
    name, kind = type(rules).__name__, rules.reads
    if not isinstance(reading, kind):
        raise VoidAuditError(
            f"by its rules, {name}, the audit is read as {kind.__name__}, and the "
            f"result holds {type(reading).__name__}; a bound reads that without any "
            "rules: its epsilon_lower(reading, delta=..., alpha=...)"
        )
    if reading.adaptive != rules.reveals:
        when = ("made all at once", "made while coins were revealed")[reading.adaptive]
        how = ("are not", "are")[rules.reveals]
        raise VoidAuditError(
            f"by {name} coins {how} revealed between guesses, and the reading is of "
            f"guesses {when}"
        )


def _accuracy_caught(
    bound: GameBound[Any], reading: Reading, claim: Guarantee, alpha: float
) -> float | None:
    if not isinstance(reading, Counts):
        return None
    return accuracy_caught(
        claim,
        canaries=reading.canaries,
        guesses=reading.guesses,
        alpha=alpha,
        chance=_CHANCE,
        bound=bound,
        alternatives=reading.alternatives,
        records_per_coin=reading.records_per_coin,
    )


def check_method(method: str, rules: Rules) -> None:
    """Refuse a bound of this package that does not hold for a game."""
    holding = {each.method for each in (rules.bound(), *rules.also())}
    if method in KNOWN - holding:
        raise VoidAuditError(
            f"the {method} bound does not hold for a game by {type(rules).__name__}; "
            "rules that it holds for must be fixed before the run"
        )


def bound_of(audit: AuditResult) -> GameBound[Any]:
    """Return the bound that an audit was judged by; its rules' if that is not known."""
    rules = audit.design.rules
    own = rules.bound()
    return next((b for b in rules.also() if b.method == audit.bound.method), own)


def is_own_bound(audit: AuditResult) -> bool:
    """Return whether the bound is by a method that this package does not have."""
    return audit.bound.method not in {*KNOWN, audit.design.rules.bound().method}


def _ceiling(
    bound: JudgingBound, reading: Reading, *, delta: float, alpha: float
) -> float:
    """Return the bound if every guess had been right, or something no smaller."""
    if not reading.tally:
        # With other guesses the game would have gone otherwise; but none shows more
        # than all its guesses right, counted at delta = 0.
        _, made = reading.right_and_made()
        return log_odds_limit(made, made, log_alpha=log(alpha))
    perfect = reading.perfect()
    return bound.epsilon_lower(perfect, delta=delta, alpha=alpha).epsilon_lower
