"""Do users take part as often as was accounted for? Watched as cohorts come.

An accountant is told how often users take part: with a chance in every round, or once
in so many rounds. Cohorts show it. A user who is twice in one cohort is clipped twice
and counts double. A user who comes back too soon meets noise of its last time, which
correlated noise takes back. A user who takes part more often in all than the claim
counts with has spent more. These are facts, and no chance is involved. Canary users
that the training's own sampler picks come a binomial number of times in all; if they
come more often than the rate explains, with a probability below the coverage's
false-positive rate, the rate that was accounted for is wrong. Coming more seldom is no
fault.

When a run is broken off, how often each user came is kept, under a digest of the name;
when they came last is forgotten.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, final

from scipy import stats

from dpaudit.game.findings import FALSE_POSITIVE_RATE, Finding, Stage, fault, inspected

__all__ = ["Visits"]

_FIELDS: Final = ("rounds", "users", "canaries", "times", "apart")


@final
class Visits:
    """Counts who takes part, round by round."""

    def __init__(self) -> None:
        self._last: dict[Any, int] = {}  # round of each user's last visit
        self._now: dict[Any, int] = {}  # visits in this round
        self.rounds = self.users = self.canaries = 0
        self.times = 0  # the most that a user was in one cohort
        self.apart = 0  # the fewest rounds from a visit to the next; 0 if none
        self._visits: dict[str, int] = {}  # of each user, by a digest of the name

    def begin(self) -> None:
        """Begin a round."""
        self._now.clear()

    def came(self, user: object, *, canary: bool) -> None:
        """Take note of a user in the cohort; one without a name is only counted."""
        self.users += not canary
        self.canaries += canary
        if user is None:
            return
        self._now[user] = self._now.get(user, 0) + 1
        self.times = max(self.times, self._now[user])
        before = self._last.get(user)
        if before is not None and before != self.rounds:
            apart = self.rounds - before
            self.apart = min(self.apart or apart, apart)
        self._last[user] = self.rounds
        if not canary:
            name = _digest(user)
            self._visits[name] = self._visits.get(name, 0) + 1

    @property
    def most(self) -> int:
        """How often the user took part who did most often, over all rounds."""
        return max(self._visits.values(), default=0)

    def end(self) -> None:
        """End a round."""
        self.rounds += 1

    def saved(self) -> dict[str, Any]:
        """Return what was counted, as JSON has it."""
        counts = {name: getattr(self, name) for name in _FIELDS}
        return {**counts, "visits": self._visits}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what ``saved`` returned."""
        for name in _FIELDS:
            setattr(self, name, int(saved[name]))
        self._visits = {str(who): int(n) for who, n in saved["visits"].items()}
        self._last.clear()

    def checks(self, separation: int) -> Iterator[Finding]:
        """Return what was seen of cohorts, where users have names."""
        if not self.times:
            return
        yield inspected(
            Stage.SAMPLING,
            "users.cohorts",
            rounds=self.rounds,
            times=self.times,
            apart=self.apart,
            separation=separation,
        )

    def faults(
        self,
        *,
        separation: int,
        most: int | None = None,
        canaries: int = 0,
        rate: float = 1.0,
    ) -> Iterator[Finding]:
        """Return what is wrong.

        Args:
            separation: RoundEvents from one visit to the next at least; 1 for any.
            most: How often a user may take part in all; None for any number.
            canaries: How many the training's own sampler picks from; 0 if none.
            rate: The chance to take part that was accounted for.
        """
        if self.times > 1:
            yield fault(Stage.SAMPLING, "users.several_times", times=self.times)
        if most is not None and self.most > most:
            yield fault(
                Stage.ACCOUNTING,
                "users.too_often",
                times=self.most,
                rounds=self.rounds,
                accounted=most,
            )
        if 0 < self.apart < separation:
            yield fault(
                Stage.SAMPLING,
                "users.too_soon",
                apart=self.apart,
                separation=separation,
            )
        chances = canaries * self.rounds
        if not chances or rate == 1:
            return
        p = float(stats.binom.sf(self.canaries - 1, chances, rate))
        if p <= FALSE_POSITIVE_RATE and self.times < 2:
            yield fault(
                Stage.SAMPLING,
                "sampling.too_often",
                rate=self.canaries / chances,
                accounted=rate,
                cause="users",
                probability=p,
            )


def _digest(user: object) -> str:
    return blake2b(repr(user).encode(), digest_size=8).hexdigest()
