"""The rules a game is played by, fixed before it begins.

A rule knows its whole game: what is revealed when, what of the guesser's freedom is
pinned down, how the guesses of a turn are checked, what is read of them at the end, and
which bound is valid for that. Whoever adds a game writes a rule.

One run: all guesses at once, nothing revealed before.

- ``OneRun``: so many guesses, or as many as the output leads to.
- ``SeparateRuns``: so many guesses, and a run of its own for every canary.
- ``Ranking``: so many guesses, in order of confidence; the bound looks at the best few.
- ``RandomHalf``: so many guesses "included", where a random half was included.
- ``WeightClasses``: so many guesses of each weight.

Adaptive: a coin is revealed once its canary was submitted, guessed or passed.

- ``AdaptiveCount``: so many guesses; one not made counts as wrong.
- ``AdaptiveClasses``: so many guesses of each weight; every guess takes a free slot.
- ``AdaptiveRounds``: so many rounds of planned weight; any guesses within a round.
- ``AdaptiveBets``: any guesses, each with a stated chance; stop at will.

Counting the guesses that an adaptive guesser happened to make, as if their number had
been fixed, is not among them: docs/explanation/errata.md shows why.
"""

from dpaudit.game.rules.base import Judging, JudgingBound, Playing, Rules
from dpaudit.game.rules.equal import (
    AdaptiveCount,
    EqualGuesses,
    OneRun,
    RandomHalf,
    Ranking,
    SeparateRuns,
)
from dpaudit.game.rules.sequential import AdaptiveBets, AdaptiveRounds
from dpaudit.game.rules.slots import (
    LARGEST_WEIGHT,
    AdaptiveClasses,
    Slots,
    WeightClasses,
)
from dpaudit.game.rules.table_scoring import Played, TableScoring

__all__ = [
    "LARGEST_WEIGHT",
    "AdaptiveBets",
    "AdaptiveClasses",
    "AdaptiveCount",
    "AdaptiveRounds",
    "EqualGuesses",
    "Judging",
    "JudgingBound",
    "OneRun",
    "Played",
    "Playing",
    "RandomHalf",
    "Ranking",
    "Rules",
    "SeparateRuns",
    "Slots",
    "TableScoring",
    "WeightClasses",
]
