"""The rules of a game, fixed before it begins.

Rules define a game completely: when coins are revealed, what the guesser may choose,
how the guesses of a turn are checked, what is read of them at the end, and which bound
is valid for that. A new kind of game is a new class of rules.

One run: all guesses at once, nothing revealed before.

- ``OneRun``: a fixed number of guesses, or as many as the output leads to.
- ``SeparateRuns``: a fixed number of guesses, and a separate run for every canary.
- ``RunByRun``: a separate run for every canary, each of which decides its own guess.
- ``Ranking``: a fixed number of guesses, ordered by confidence; the bound looks at
  increasing numbers of the best.
- ``RandomHalf``: a fixed number of guesses, all "included", if a random half was
  included.
- ``WeightClasses``: a fixed number of guesses of each weight.

Adaptive: a coin is revealed once its canary was submitted, whether guessed or not.

- ``AdaptiveCount``: a fixed number of guesses; one not made counts as incorrect.
- ``AdaptiveClasses``: a fixed number of guesses of each weight, each of which takes a
  free slot.
- ``AdaptiveRounds``: rounds of planned weight; any guesses within a round.
- ``AdaptiveBets``: any guesses, each with a stated probability; stop at any time.

Counting the guesses that an adaptive guesser happened to make, as if their number had
been fixed, is not valid: docs/explanation/errata.md shows why.
"""

from dpaudit.game.rules.base import Judging, JudgingBound, Playing, Rules
from dpaudit.game.rules.equal import (
    AdaptiveCount,
    EqualGuesses,
    OneRun,
    RandomHalf,
    Ranking,
    RunByRun,
    SeparateRuns,
    Sides,
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
    "RunByRun",
    "SeparateRuns",
    "Sides",
    "Slots",
    "TableScoring",
    "WeightClasses",
]
