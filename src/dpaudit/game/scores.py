"""The audit of a table of scores computed elsewhere.

Each canary has an id, a coin and a score, higher where "included" is more likely. The
coins must be independent and fair, or, with ``RandomHalf``, a uniformly random half was
included; and the scores may depend on the output only. A table cannot prove either, but
some violations are visible and refused: coins that are far from fair, exactly as many
ones as zeros, coins that depend on the ids, duplicate ids, scores that are not numbers.
Ties between equal scores are broken by a random value for each id if a key or the
design fixes one, for which the ids must have been assigned before the coin flips;
otherwise they are broken against the auditor (``tie_breaking``).

Nothing is tuned on the coins: the number of guesses is part of the rules, or, with
``Ranking``, the bound accounts for choosing it afterwards.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.bounds.readings import Reading
from dpaudit.errors import InvalidRunError, Remedy
from dpaudit.game.coins import Coins
from dpaudit.game.design import Commitment, Design, check_independent_coins
from dpaudit.game.findings import Finding
from dpaudit.game.result import Result, effect_seen, judge
from dpaudit.game.rules import OneRun, Rules
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.game.verdict import decided_by_ties
from dpaudit.stats.binomial import log_tails

__all__ = [
    "audit_scores",
    "check_assigned",
    "check_rows",
    "check_score_rules",
    "check_scores",
    "counted_after",
    "guessed_included",
    "most_confident_guesses",
    "moved",
    "read_ranks",
    "reading_of_scores",
    "ties_decided",
    "ties_sanity_check",
]

_NEXT_TIME = (
    "Next time let a coin of its own decide on each canary before the run: `dpaudit "
    "register` draws them"
)
_UNFAIR = 1e-6  # maximum probability of refusing fair coins as unfair


def audit_scores(
    ids: ArrayLike,
    bits: ArrayLike | Coins,
    scores: ArrayLike,
    *,
    design: Design,
    tie_rng: np.random.Generator | None = None,
    coins_were_independent: bool = False,
    not_exercised: tuple[str, ...] = (),
) -> Result:
    """Return the result of an audit from ids, coins and scores.

    Args:
        ids: The canary of each row, named before its coin flip. With ``Coins``, its
            number from 0.
        bits: For each row 1 if the canary was included and 0 if not; or the coins,
            from which they are derived.
        scores: For each row how strongly the output indicates "included"; any scale.
        design: Fixed before the run; its rules are ``OneRun`` (half of the guesses go
            to the highest scores, half to the lowest), ``Ranking``, ``WeightClasses``
            (the most confident guesses are in the heaviest class), or ``RandomHalf``
            (the highest scores are guessed).
        tie_rng: Breaks ties between equal scores, by a random value for each id. By
            default the key of the coins does, or the design's ``tie_seed``; with
            neither, ties are broken against the auditor.
        coins_were_independent: States that every coin was flipped independently, in
            case there are exactly as many ones as zeros.
        not_exercised: Parts of the mechanism that the audit did not exercise.

    Raises:
        InvalidRunError: The table or the design makes the audit invalid.

    Example:
        >>> from dpaudit import ApproxDP, Key, Ranking
        >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
        >>> coins = Coins(key=Key(bytes(32)), count=1000)
        >>> rng = np.random.default_rng(0)
        >>> scores = coins.bits() * 2.0 + rng.standard_normal(1000)
        >>> design = Design(canaries=1000, rules=Ranking(guesses=1000), claim=claim)
        >>> result = audit_scores(np.arange(1000), coins, scores, design=design)
        >>> result.claim_test.refuted
        True
    """
    reading = reading_of_scores(
        ids,
        bits,
        scores,
        design=design,
        tie_rng=tie_rng,
        coins_were_independent=coins_were_independent,
    )
    commitment = Commitment.to(bits.key, design) if isinstance(bits, Coins) else None
    truth = bits.at(np.asarray(ids, np.int64)) if isinstance(bits, Coins) else bits
    return judge(
        reading,
        design=design,
        commitment=commitment,
        not_exercised=not_exercised,
        sanity_checks=(
            effect_seen(reading, design=design),
            *ties_sanity_check(bits, scores, design=design, tie_rng=tie_rng),
        ),
        scores=ScoreSummary.of(scores, truth),
    )


def reading_of_scores(
    ids: ArrayLike,
    bits: ArrayLike | Coins,
    scores: ArrayLike,
    *,
    design: Design,
    tie_rng: np.random.Generator | None = None,
    coins_were_independent: bool = False,
) -> Reading:
    """Return the guesses from scores, without a bound; refuses as ``audit_scores``."""
    _validate.kind("design", design, Design)
    if tie_rng is not None:
        _validate.generator("tie_rng", tie_rng)
    names, values = np.asarray(ids), np.asarray(scores)
    _check_rows(names, values, design)
    if isinstance(bits, Coins):
        truth = _derived(names, bits, design)
    else:
        truth = np.asarray(bits)
        _check_coins(truth, names, design, stated_independent=coins_were_independent)
    drawn = _tie_breaks(bits, design, tie_rng)
    tie_breaks = None
    if drawn is not None:
        # One value per id, not per row: the order of the rows must not matter.
        place = np.empty(len(names), np.int64)
        place[np.argsort(names)] = np.arange(len(names))
        tie_breaks = drawn.at(place)
    return read_ranks(values, truth == 1, tie_breaks, design=design)


def _tie_breaks(
    bits: ArrayLike | Coins, design: Design, tie_rng: np.random.Generator | None
) -> TieBreaking | None:
    """Return how equal scores are ordered at random; None if nothing fixes it."""
    if tie_rng is not None:
        return TieBreaking.drawn(tie_rng)
    return TieBreaking.of(design, bits.key if isinstance(bits, Coins) else None)


def ties_sanity_check(
    bits: ArrayLike | Coins,
    scores: ArrayLike,
    *,
    design: Design,
    tie_rng: np.random.Generator | None = None,
) -> tuple[Finding, ...]:
    """Return how many guesses ties broken against the auditor decided; () if none."""
    if _tie_breaks(bits, design, tie_rng) is not None:
        return ()
    included = np.asarray(bits) == 1
    return decided_by_ties(
        ties_decided(np.asarray(scores), included, design=design), design.guesses
    )


def _check_rows(
    names: NDArray[np.generic], values: NDArray[np.generic], design: Design
) -> None:
    if names.ndim != 1 or names.shape != values.shape:
        raise InvalidRunError(
            f"ids and scores must be two lists of one length, got shapes {names.shape} "
            f"and {values.shape}"
        )
    check_rows(len(names), design)
    check_scores(values)
    try:
        different = len(np.unique(names))
    except TypeError as error:
        raise InvalidRunError("ids must be all numbers or all text") from error
    if different < len(names):
        raise InvalidRunError(
            "an id appears twice: each canary has one coin and one score"
        )


def check_scores(values: NDArray[np.generic]) -> None:
    """Refuse scores that are not numbers."""
    if values.dtype.kind not in "fiub" or np.any(np.isnan(values.astype(np.float64))):
        raise InvalidRunError(
            "scores must be numbers; a missing score must be replaced by one that does "
            "not depend on the coin, for example the median"
        )


def check_rows(rows: int, design: Design) -> None:
    """Refuse a table without exactly one row per canary."""
    if rows != design.canaries:
        raise InvalidRunError(
            f"{rows} rows for canaries={design.canaries}; every canary whose "
            "coin was flipped needs a row, or those left out were chosen by someone"
        )


def _derived(
    names: NDArray[np.generic], coins: Coins, design: Design
) -> NDArray[np.uint8]:
    check_independent_coins(design)
    if coins.count != design.canaries:
        raise InvalidRunError(
            f"there are {coins.count} coins for canaries={design.canaries}"
        )
    if names.dtype.kind not in "iu" or names.min() < 0 or names.max() >= coins.count:
        raise InvalidRunError(
            f"an id is unknown: ids must be whole numbers from 0 to {coins.count - 1}"
        )
    return coins.at(names.astype(np.int64))


def _check_coins(
    truth: NDArray[np.generic],
    names: NDArray[np.generic],
    design: Design,
    *,
    stated_independent: bool,
) -> None:
    rows = len(names)
    if truth.shape != (rows,) or not np.all(np.isin(truth, (0, 1))):
        raise InvalidRunError(
            "bits must hold 0 or 1 for every row, or {remedy}",
            remedy=Remedy.DERIVE_COINS,
        )
    ones = int(np.count_nonzero(truth))
    check_assigned(ones, design, stated_independent=stated_independent)
    _check_order(truth[np.argsort(names)])


def _check_order(truth: NDArray[np.generic]) -> None:
    """Refuse coins that depend on the ids, for example if the included come first.

    Whether a coin differs from the one before it is itself a fair coin, independent of
    the others: the number of changes is binomial.
    """
    pairs = len(truth) - 1
    changes = int(np.count_nonzero(truth[1:] != truth[:-1]))
    if _hardly_fair(changes, pairs):
        raise InvalidRunError(
            f"in the order of the ids, {changes} of {pairs} coins differ from the one "
            "before, which fair coins do less than once in a million times: ids must "
            "be there before the coins are flipped, and each coin be flipped by itself"
        )


@lru_cache(maxsize=1024)
def _hardly_fair(ones: int, coins: int) -> bool:
    """Return whether fair coins deviate this far with probability below 1e-6."""
    more = max(ones, coins - ones)
    return coins > 0 and bool(2 * np.exp(log_tails(more, coins, 0.0)[0]) < _UNFAIR)


def check_assigned(ones: int, design: Design, *, stated_independent: bool) -> None:
    """Refuse a number of included canaries that contradicts the rules.

    Refused are coins that are unlikely to be fair or seem arranged, and, under
    ``RandomHalf``, any number other than half.

    Args:
        ones: How many were included.
        design: The design of the audit.
        stated_independent: Whether the user states that every canary had its own coin.
    """
    rows = design.canaries
    if not design.rules.independent_coins:
        if stated_independent:
            raise InvalidRunError(
                "a random half was included, or every canary had a coin of its own; it "
                "cannot be both"
            )
        if ones != rows // 2:
            raise InvalidRunError(
                f"{ones} of {rows} canaries were included, and a random half, rounded "
                f"down, is {rows // 2}"
            )
        return
    if _hardly_fair(ones, rows):
        raise InvalidRunError(
            f"{ones} of {rows} coins are ones, which fair coins do less than once in a "
            f"million times; the bound is for fair coins, one per canary. {_NEXT_TIME}"
        )
    if abs(2 * ones - rows) <= rows % 2 and rows > 1 and not stated_independent:
        raise InvalidRunError(
            f"exactly half of the coins are ones ({ones} of {rows}). State how they "
            "were assigned: {remedy}. If the canaries were not assigned at random (by "
            "date, by source, members and non-members of a data set), nothing can be "
            "shown. "
            f"{_NEXT_TIME}",
            remedy=Remedy.STATE_HOW,
        )


def read_ranks(
    values: NDArray[np.generic],
    included: NDArray[np.bool_],
    tie_breaks: NDArray[np.uint64] | None,
    *,
    design: Design,
) -> Reading:
    """Return the guesses from both ends of the scores inwards, as the bound reads them.

    Args:
        values: The scores.
        included: Whether each canary was included.
        tie_breaks: Order equal scores; without them, ties are broken against the
            auditor (``dpaudit.game.tie_breaking``).
        design: Its rules determine the guesses.
    """
    check_score_rules(design)
    right = _right(values, included, tie_breaks, design)
    return design.rules.read_surest(right, canaries=design.canaries)


def _right(
    values: NDArray[np.generic],
    included: NDArray[np.bool_],
    tie_breaks: NDArray[np.uint64] | None,
    design: Design,
) -> NDArray[np.bool_]:
    """Return which guesses are correct, the most confident first."""
    second = ~included if tie_breaks is None else tie_breaks
    ranks = np.lexsort((second, values.astype(np.float64)))
    which, guessed = _most_confident(ranks, design.rules, design.guesses)
    return np.asarray(included[which] == guessed)


def ties_decided(
    values: NDArray[np.generic], included: NDArray[np.bool_], *, design: Design
) -> int:
    """Return for how many guesses the order of ties alone decides if they are correct.

    Example:
        >>> from dpaudit import OneRun, PureDP
        >>> rules, claim = OneRun(guesses=2), PureDP(epsilon=1.0)
        >>> design = Design(canaries=4, rules=rules, claim=claim)
        >>> included = np.array([True, False, True, False])
        >>> ties_decided(np.array([3, 3, 2, 1]), included, design=design)
        1
    """
    worst = _right(values, included, None, design)
    # With every coin flipped, the worst order becomes the best.
    best = ~_right(values, ~included, None, design)
    return moved((np.cumsum(best) - np.cumsum(worst))[counted_after(design) - 1])


def counted_after(design: Design) -> NDArray[np.int64]:
    """Return after how many guesses correct ones are counted; after each in a ranking.

    Example:
        >>> from dpaudit import PureDP, Ranking, WeightClasses
        >>> weights = WeightClasses(weights=(2, 1), guesses=(1, 2))
        >>> for rules in (Ranking(guesses=3), weights):
        ...     counted_after(Design(canaries=4, rules=rules, claim=PureDP(epsilon=1)))
        array([1, 2, 3])
        array([1, 3])
    """
    rules = design.rules
    if rules.ordered:
        return np.arange(1, design.guesses + 1)
    return np.array(rules.class_ends(design.canaries))


def moved(gains: NDArray[np.int64]) -> int:
    """Return the number of guesses behind cumulative gains in correct guesses."""
    return int(np.abs(np.diff(gains, prepend=0)).sum())


def most_confident_guesses(
    values: NDArray[np.float64], tie_breaks: NDArray[np.uint64], *, guesses: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return which rows are guessed, most confident first, and whether as included.

    Example:
        >>> values, tie_breaks = np.array([0.5, 3.0, -2.0, 1.0]), np.zeros(4, np.uint64)
        >>> most_confident_guesses(values, tie_breaks, guesses=3)
        (array([1, 2, 3]), array([ True, False,  True]))
    """
    return _most_confident(
        np.lexsort((tie_breaks, values)), OneRun(guesses=guesses), guesses
    )


def _most_confident(
    ranks: NDArray[np.int64], rules: Rules, guesses: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rows guessed, most confident first, and which as included."""
    high = guessed_included(rules, guesses)
    top, bottom = np.cumsum(high) - 1, np.cumsum(~high) - 1
    return np.where(high, ranks[::-1][top], ranks[bottom]), high


def guessed_included(rules: Rules, guesses: int) -> NDArray[np.bool_]:
    """Return which of the most confident guesses are "included" (of high scores).

    Example:
        >>> guessed_included(OneRun(guesses=3), 3)
        array([ True, False,  True])
    """
    return np.asarray(np.diff(rules.from_top(np.arange(guesses + 1))) == 1)


def check_score_rules(design: Design) -> None:
    """Refuse rules under which guesses are not made all at once."""
    if design.rules.adaptive or design.runs > 1:
        raise InvalidRunError(
            "scores are guessed all at once: the rules must be OneRun(guesses=...), "
            "Ranking(guesses=...), WeightClasses(...) or RandomHalf(guesses=...), got "
            f"{type(design.rules).__name__}"
        )
