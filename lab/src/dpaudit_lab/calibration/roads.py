"""The public roads from coins and scores to a verdict, as people walk them.

A road gets what an auditor has: a design, the coins (of a key, or of a file), and what
a mechanism said about each of them; and it calls what an auditor calls. Files are
written and read again, shards are tallied apart and merged as documents, and equal
scores are decided by what the design or the key fixes for it. Rows come sorted by coin
wherever the order of rows is not supposed to matter: who writes a file may well write
one kind after the other.

Two roads are dpaudit's of an earlier day (``AS_IT_WAS``). They decided between equal
scores by lots for places in sorted lists, which the coins had sorted, and by lots
hashed from counts, which are the coins'. They stand here to be found out.

The black box is judged as *scores, key* is. Opacus and JAX Privacy are judged as *sums*
are; how sums come about there is run through by tests, not here.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.methods import judge_claim
from dpaudit.bounds.readings import Counts, Ranked
from dpaudit.evidence import tie_rng
from dpaudit.game.auditors import audit_adaptive, audit_classic, audit_one_run
from dpaudit.game.coins import Coins, Key
from dpaudit.game.combining import combine_runs
from dpaudit.game.design import Design
from dpaudit.game.guessers import AdaptiveMostLikely, Everyone, MostLikely
from dpaudit.game.mechanism import FixedPosterior
from dpaudit.game.pairs import Pairs
from dpaudit.game.result import Result, judge
from dpaudit.game.rules import AdaptiveCount, OneRun, SeparateRuns, WeightClasses
from dpaudit.game.scores import audit_scores
from dpaudit.tables import sources
from dpaudit.tables.tally import Shard, conclude_scores, tally_scores
from dpaudit.tables.tally_json import tally_from_json, tally_to_json
from dpaudit.testing import Calls, OneValue, audit_function, fixed_key
from dpaudit.training.any_loop import SumsAudit
from dpaudit_lab.calibration.guessers import Stopping, StoppingLate, Weighing
from dpaudit_lab.calibration.shards import conclude_tallies, tally_local

__all__ = ["AS_IT_WAS", "ROADS", "Material", "Road"]

Scores: TypeAlias = NDArray[np.float64]
Bits: TypeAlias = NDArray[np.uint8]

_PAIRS: Final = Pairs(x=0, y=1)
_SHARDS: Final = 3
_RUNS: Final = 3  # that are combined
_DESIGNS: Final = 4  # under which one run is combined with itself


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Material:
    """What one audit is made of.

    Attributes:
        design: Fixed before the coins were thrown.
        key: Of the coins; None for roads on which the coins are a file's.
        bits: The coins.
        scores: What the mechanism said about each; positive speaks for 1.
        mechanism: The mechanism itself, for roads that run it: from coins and
            randomness to scores.
        rng: The mechanism's randomness, and that of further keys.
    """

    design: Design
    key: Key | None
    bits: Bits
    scores: Scores
    mechanism: Callable[[Bits, np.random.Generator], Scores]
    rng: np.random.Generator

    @property
    def secret(self) -> Key:
        """The key, on roads that need one."""
        assert self.key is not None
        return self.key

    @property
    def coins(self) -> Coins:
        """The coins, as their key gives them."""
        return Coins(key=self.secret, count=self.design.canaries)


Road: TypeAlias = Callable[[Material], bool]


@final
@dataclass(frozen=True, slots=True)
class _Said:
    """A mechanism that says what was drawn for these coins already."""

    scores: Scores

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> Scores:  # noqa: ARG002
        return self.scores

    def log_odds(self, output: Scores) -> Scores:
        return output

    def posterior(self, output: Scores) -> FixedPosterior:
        return FixedPosterior(output)


@final
@dataclass(frozen=True, slots=True)
class _Run:
    """A mechanism that is run on whatever data there are."""

    mechanism: Callable[[Bits, np.random.Generator], Scores]

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> Scores:
        return self.mechanism(data, rng)

    def log_odds(self, output: Scores) -> Scores:
        return output


def _refuted(result: Result) -> bool:
    return result.claim_test.refuted


# Tables.


def _by_coin(given: Material) -> NDArray[np.int64]:
    return np.argsort(given.bits, kind="stable")


def _scores(given: Material) -> bool:
    return _table(given, np.arange(len(given.bits)), given.bits, given.scores)


def _scores_sorted(given: Material, *, text: bool) -> bool:
    order = _by_coin(given)
    ids = order.astype(str) if text else order
    return _table(given, ids, given.bits[order], given.scores[order])


def _scores_key(given: Material) -> bool:
    order = _by_coin(given)
    return _table(given, order, given.coins, given.scores[order])


def _table(
    given: Material, ids: NDArray[Any], bits: Bits | Coins, scores: Scores
) -> bool:
    key = given.secret if isinstance(bits, Coins) else None
    return _refuted(
        audit_scores(
            ids,
            bits,
            scores,
            design=given.design,
            tie_rng=tie_rng(given.design, key),
            coins_were_independent=True,
        )
    )


def _file(given: Material, *, suffix: str) -> bool:
    order = _by_coin(given)
    bits, scores = given.bits[order], given.scores[order]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"scores{suffix}"
        if suffix == ".npz":
            np.savez(path, id=order, bit=bits, score=scores)
        else:
            rows = zip(order.tolist(), bits.tolist(), scores.tolist(), strict=True)
            lines = [",".join(map(str, row)) for row in rows]
            path.write_text("\n".join(["id,bit,score", *lines]), "utf-8")
        table = sources.read_score_table(path)
    assert table.bits is not None
    return _table(given, table.ids, table.bits, table.scores)


def _ranked(given: Material, *, by_coin: bool) -> bool:
    order = _by_coin(given) if by_coin else np.arange(len(given.bits))
    reading = Ranked.of(given.scores[order], given.bits[order])
    return _refuted(judge(reading, design=given.design, commitment=None))


# Lists.


def _lists(given: Material, *, key: bool = False, file: bool = False) -> bool:
    included = given.bits == 1
    lists = sources.ScoreLists(
        included=given.scores[included], excluded=given.scores[~included]
    )
    read: sources.Scores = lists
    if file:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "lists.npz"
            np.savez(path, in_scores=lists.included, out_scores=lists.excluded)
            read = sources.read_scores(path)
    secret = given.coins.key if key else None
    return _refuted(read.audit(given.design, secret, coins_were_independent=True))


# Tallies.


def _tallies(
    given: Material, *, check_ids: bool = True, key: bool = False, shards: int = 1
) -> bool:
    import pyarrow as pa  # noqa: PLC0415 (an extra)
    from pyarrow import parquet  # noqa: PLC0415

    order, tallies = _by_coin(given), []
    with TemporaryDirectory() as folder:
        for number, part in enumerate(np.array_split(order, shards)):
            path = Path(folder) / f"{number}.parquet"
            columns: dict[str, NDArray[Any]] = {"id": part, "score": given.scores[part]}
            if not key:
                columns["bit"] = given.bits[part]
            parquet.write_table(pa.table(columns), path)
            shard = Shard(
                files=(path,),
                design=given.design,
                key=given.secret if key else None,
                check_ids=check_ids,
            )
            tallies.append(tally_to_json(tally_scores(shard)))
    found = [tally_from_json(tally) for tally in reversed(tallies)]
    return _refuted(conclude_scores(found, coins_were_independent=True))


# Counts.


def _right(given: Material) -> int:
    """Return how many are right if every coin is guessed the way of its score."""
    return int(np.count_nonzero((given.scores >= 0) == (given.bits == 1)))


def _counts(given: Material) -> Counts:
    n = len(given.bits)
    return Counts(canaries=n, guesses=n, correct=_right(given))


def _judged(given: Material) -> bool:
    return _refuted(judge(_counts(given), design=given.design, commitment=None))


def _tested(given: Material) -> bool:
    design = given.design
    return judge_claim(design.claim, _counts(given), alpha=design.alpha).refuted


# Games.


def _one_run(given: Material) -> bool:
    return _refuted(_played(given))


def _played(given: Material) -> Result:
    said, rules = _Said(given.scores), given.design.rules
    guesser: Any = MostLikely(mechanism=said, guesses=given.design.guesses)
    if isinstance(rules, WeightClasses):
        guesser = Weighing(mechanism=said, rules=rules)
    return audit_one_run(
        said,
        guesser,
        pairs=_PAIRS,
        design=given.design,
        rng=given.rng,
        key=given.secret,
    )


def _adaptive(given: Material, *, stops: bool) -> bool:
    said, rules = _Said(given.scores), given.design.rules
    guesser: Any = AdaptiveMostLikely(mechanism=said, threshold=0.0, rules=rules)  # type: ignore[arg-type]  # the cases name adaptive rules
    if stops:
        kind = StoppingLate if isinstance(rules, AdaptiveCount) else Stopping
        guesser = kind(
            mechanism=said,
            rules=rules,  # type: ignore[arg-type]  # as above
            epsilon=given.design.claim.epsilon_at(given.design.bound_delta),
            canaries=given.design.canaries,
        )
    return _refuted(
        audit_adaptive(
            said,
            guesser,
            pairs=_PAIRS,
            design=given.design,
            rng=given.rng,
            key=given.secret,
        )
    )


def _classic(given: Material) -> bool:
    def told(data: Bits, rng: np.random.Generator) -> Scores:
        return given.mechanism(data[1:2], rng)

    found = audit_classic(
        _Run(told),
        lambda score: 1 if score[0] >= 0 else -1,
        base=np.zeros(3, np.uint8),
        place=1,
        pair=_PAIRS,
        design=replace(given.design, rules=SeparateRuns(guesses=given.design.guesses)),
        rng=given.rng,
        key=given.secret,
    )
    return _refuted(found)


def _local(given: Material) -> bool:
    run = _Run(given.mechanism)
    tallies = [
        tally_local(
            run,
            Everyone(mechanism=run),
            pairs=_PAIRS,
            design=given.design,
            key=given.secret,
            shard=shard,
            shards=_SHARDS,
        )
        for shard in range(_SHARDS)
    ]
    return _refuted(conclude_tallies(tallies))


def _combined(given: Material) -> bool:
    """Combine runs with keys of their own."""
    results = []
    for _ in range(_RUNS):
        key = fixed_key(given.rng.bytes(32))
        bits = Coins(key=key, count=given.design.canaries).bits()
        scores = given.mechanism(bits, given.rng)
        results.append(_played(replace(given, key=key, bits=bits, scores=scores)))
    return combine_runs(results).claim_test.refuted


def _combined_with_itself(given: Material) -> bool:
    """Combine one run with itself, under designs that differ in a guess or two."""
    designs = [
        replace(given.design, rules=OneRun(guesses=given.design.guesses - fewer))
        for fewer in range(_DESIGNS)
    ]
    results = [_played(replace(given, design=design)) for design in designs]
    return combine_runs(results).claim_test.refuted


# Training, and functions.


def _sums(given: Material) -> bool:
    """Hand over scores as the noisy sum of a loop's one step."""
    audit = SumsAudit(
        design=given.design,
        key=given.secret,
        dimension=given.design.canaries,
        sample_rate=1.0,
    )
    audit.contributions()
    audit.observe(given.scores[audit.coordinates])
    return audit.finish().refuted


def _function(given: Material) -> bool:
    def called(bit: int, rng: np.random.Generator) -> float:
        return float(given.mechanism(np.array([bit], np.uint8), rng)[0])

    return audit_function(
        called,
        neighbours=OneValue(x=0, y=1),
        claim=given.design.claim,
        alpha=given.design.alpha,
        budget=Calls(calls=given.design.canaries),
        key=given.secret,
    ).refuted


# As it was.


def _lots_for_places(given: Material) -> bool:
    """Decide by a seed's lots for places in lists that the coins have sorted."""
    return _by_lots(given, given.design.setting.tie_seed or 0)


def _lots_from_counts(given: Material) -> bool:
    """Decide by lots hashed from the design and from how many of each score are in."""
    counted = np.unique(
        np.stack([given.scores, given.bits]), axis=1, return_counts=True
    )
    said = given.design.to_json().encode() + b"".join(
        part.tobytes() for part in counted
    )
    return _by_lots(given, int.from_bytes(hashlib.sha256(said).digest(), "big"))


def _by_lots(given: Material, seed: int) -> bool:
    order = np.lexsort((given.scores, 1 - given.bits.astype(np.int64)))
    scores, included = given.scores[order], given.bits[order] == 1
    lots = np.random.default_rng(seed).bit_generator.random_raw(len(scores))
    ranks, r = np.lexsort((lots, scores)), given.design.guesses
    high, low = ranks[::-1][: (r + 1) // 2], ranks[: r // 2]
    right = int(included[high].sum() + (~included[low]).sum())
    counts = Counts(canaries=len(scores), guesses=r, correct=right)
    return _refuted(judge(counts, design=given.design, commitment=None))


ROADS: Final[MappingProxyType[str, Road]] = MappingProxyType(
    {
        "scores": _scores,
        "scores, sorted by coin": partial(_scores_sorted, text=False),
        "scores, text ids, sorted by coin": partial(_scores_sorted, text=True),
        "scores, CSV file": partial(_file, suffix=".csv"),
        "scores, npz file": partial(_file, suffix=".npz"),
        "scores, key": _scores_key,
        "ranked reading": partial(_ranked, by_coin=False),
        "ranked reading, sorted by coin": partial(_ranked, by_coin=True),
        "lists": _lists,
        "lists, npz file": partial(_lists, file=True),
        "lists, key": partial(_lists, key=True),
        "tally": _tallies,
        "tally, 3 shards": partial(_tallies, shards=_SHARDS),
        "tally, ids unchecked": partial(_tallies, check_ids=False),
        "tally, ids unchecked, 3 shards": partial(
            _tallies, check_ids=False, shards=_SHARDS
        ),
        "tally, key": partial(_tallies, key=True),
        "tally, key, 3 shards": partial(_tallies, key=True, shards=_SHARDS),
        "counts": _judged,
        "counts, claim test": _tested,
        "one run": _one_run,
        "adaptive": partial(_adaptive, stops=False),
        "adaptive, stops when ahead": partial(_adaptive, stops=True),
        "classic": _classic,
        "local, 3 shards": _local,
        "three runs combined": _combined,
        "one run combined with itself": _combined_with_itself,
        "sums of any loop": _sums,
        "function": _function,
    }
)
AS_IT_WAS: Final[MappingProxyType[str, Road]] = MappingProxyType(
    {
        "as it was: lists, lots for places": _lots_for_places,
        "as it was: tally, lots from counts": _lots_from_counts,
    }
)
