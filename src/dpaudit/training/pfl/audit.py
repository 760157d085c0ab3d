"""Audit federated training with pfl by canary users, from its noisy sums.

The privacy unit is a user, so canaries are users. Each is sampled or added to cohorts,
trained, clipped and added up like others; only its update is replaced by twice the
clipping bound in one coordinate, or by zero if its coin excludes it. The guesser sees
the sum at the canaries' coordinates just after the noise, and knows the contributions
of real users there, as the accountant's proof allows.

The clipping bound and the strategy of correlated noise are read from the mechanism,
the claim from the accountant.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from pfl.context import UserContext
from pfl.data.dataset import AbstractDataset
from pfl.data.federated_dataset import FederatedDatasetBase
from pfl.internal.ops.selector import get_default_framework_module
from pfl.model.base import StatefulModel
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.privacy_accountant import PrivacyAccountant
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from pfl.stats import MappedVectorStatistics

from dpaudit._progress import progress_note
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.strategy import Matrix
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.findings import (
    Finding,
    Stage,
    canary_tested,
    fault,
    not_checked,
)
from dpaudit.game.result import Result
from dpaudit.game.setting import CanaryInsertion, InsertionPoint, Setting, Unit
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.training.any_loop import (
    noise_watched,
)
from dpaudit.training.audit import TrainingAudit, coordinates_needed, per_coordinate
from dpaudit.training.pfl.layout import StatisticsLayout
from dpaudit.training.pfl.postprocessors import OnServer, OnUser
from dpaudit.training.pfl.probing import Update, probe_users
from dpaudit.training.pfl.setup import (
    Added,
    Insertion,
    Sampled,
    claim_of,
    clipping_bound,
    read_accountant,
    read_mechanism,
)
from dpaudit.training.pfl.users import (
    UsersWithCanaries,
    canary_of,
    user_id,
    with_canaries,
)
from dpaudit.training.probe.report import Sensitivity
from dpaudit.training.strategy_check import check_strategy
from dpaudit.training.visits import Visits

__all__ = ["PflAudit"]

_CANARY_NORM: Final = 2.0  # of a canary before clipping, over the clipping bound
_UPDATES_KEPT: Final = 12  # real users' updates of a round, for a probe


@final
class PflAudit:
    """Audits one federated training run in pfl's simulated backend.

    Example:
        See ``examples/pfl_users.py``; three statements are added to a program::

            audit = PflAudit(model, mechanism, accountant, data=some_user,
                             design=design, key=key)
            backend = SimulatedBackend(
                training_data=audit.dataset(users),
                val_data=users,
                postprocessors=audit.around([mechanism]),
            )
            algorithm.run(..., backend=backend, model=model)
            print(audit.finish())
    """

    def __init__(  # noqa: PLR0913 (each is something that is fixed beforehand)
        self,
        model: StatefulModel,
        mechanism: CentrallyAppliedPrivacyMechanism,
        accountant: PrivacyAccountant,
        *,
        data: AbstractDataset,
        design: Design,
        key: Key,
        insertion: Insertion = Added(),  # noqa: B008 (a frozen value)
        users: int | None = None,
        unchecked: Collection[str] = (),
    ) -> None:
        """Read the run's configuration; ``dataset`` and ``around`` attach the audit.

        Args:
            model: The trained model; names and shapes of updates are read from it.
            mechanism: The central privacy mechanism, the same object as among the
                postprocessors.
            accountant: Its claim is tested. With ``Added`` canaries participate at its
                sampling probability, in their turns. If that is 1, the claim is for a
                user who participates in as many rounds as there are compositions.
            data: The data of each canary user: any user's data set. Its update is
                replaced, but its size counts where users are weighted by it.
            design: Fixed beforehand. Publish ``self.commitment`` before training.
            key: The secret of this run; never use one twice.
            insertion: ``Added(participation=...)``: the audit adds canary users to
                cohorts; ``Sampled()``: pfl's sampler picks them.
            users: Number of users without canaries, if they are sampled: how often each
                participates is then compared with the accountant's sampling.
            unchecked: Stages you leave unchecked, among ``"sampling"``,
                ``"gradients"``, ``"clipping"`` and ``"interference"`` (what comes after
                the noise). A stage that is neither checked nor listed makes the audit
                inconclusive. Nothing here checks the last.
        """
        self._inside, self._strategy = read_mechanism(mechanism)
        self._noise, rate, self._times = read_accountant(accountant)
        self._mechanism, self._accountant = mechanism, accountant
        self._rate, self._insertion, self._data = rate, insertion, data
        self._participation = _participation(
            insertion, self._strategy, times=self._times
        )
        _check_alone()
        count = coordinates_needed(design)
        self._places = StatisticsLayout(model.get_parameters(), count, key=key)
        layout = self._places.layout
        self._watched = noise_watched(count, key)
        arrays = layout.array[self._watched]
        self._audit = TrainingAudit(
            design=design,
            key=key,
            sample_rate=rate,
            observed_setting=Setting(
                framework="pfl",
                dimension=layout.dimension,
                rate=rate,
                insertion=CanaryInsertion(
                    point=InsertionPoint.USER, sampled=isinstance(insertion, Sampled)
                ),
                noise=self._noise or None,
                unit=Unit.USER,
            ),
            knows_real_sums=True,
            groups=layout.groups,
            by_program=True,
            watched=[self._places.names[array] for array in arrays],
            participation=self._participation,
            strategy=self._strategy,
            unchecked=unchecked,
        )
        self.design, self.commitment = self._audit.design, self._audit.commitment
        self.user_ids = tuple(user_id(i) for i in range(self.design.canaries))
        self._per_coordinate = per_coordinate(self.design)
        self._visits = Visits(
            users,
            canaries=self.design.canaries if isinstance(insertion, Sampled) else 0,
        )
        self._after: tuple[Postprocessor, ...] = ()
        self._clip = 0.0
        self._begun = False
        self._came = np.zeros(self.design.canaries, np.int64)  # updates in this round
        self._real, self._before = np.zeros(count), np.zeros(count)
        self._updates: list[Update] = []

    @property
    def rounds(self) -> int:
        """Number of observed rounds."""
        return self._audit.likelihood.steps

    def dataset(self, base: FederatedDatasetBase) -> FederatedDatasetBase:
        """Return the training data with canary users added in their turns.

        Args:
            base: The run's training data; for ``Sampled()``, made with ``users``.
        """
        return UsersWithCanaries(base, self._data, _Coming(self))

    def users(
        self, make: Callable[[Any], AbstractDataset]
    ) -> Callable[[Any], AbstractDataset]:
        """Return ``make``, extended to make the data sets of canary users too.

        For ``insertion=Sampled()``: pass it to ``FederatedDataset``, and add
        ``self.user_ids`` to the users that are sampled from.

        Args:
            make: The run's own function from a user's identifier to a data set.
        """
        if not isinstance(self._insertion, Sampled):
            raise InvalidInputError(
                "this audit adds its canary users to cohorts itself; for those that "
                "the training's own sampler picks pass insertion=Sampled()"
            )
        return with_canaries(make, self._data)

    def around(self, postprocessors: Sequence[Postprocessor]) -> list[Postprocessor]:
        """Return the postprocessors with those of the audit inserted.

        Args:
            postprocessors: All of the run's, in their order, including the mechanism.
        """
        places = [i for i, p in enumerate(postprocessors) if p is self._mechanism]
        if len(places) != 1:
            raise InvalidInputError(
                "postprocessors must hold the mechanism that the audit was given, "
                f"once, got {postprocessors!r:.80}"
            )
        (place,) = places
        self._after = tuple(postprocessors)
        guarded = self._audit.guard.hook
        return [
            OnUser(self._sent),
            *postprocessors[:place],
            OnServer(guarded(self._read_after_noise)),
            self._mechanism,
            OnServer(guarded(self._read_before_noise)),
            *postprocessors[place + 1 :],
            OnUser(guarded(self._sum_real_update)),
        ]

    def probe(self, *, users: int = 8, seed: int = 0) -> Sensitivity:
        """Measure how much one user changes the sum before noise, with its weight.

        Real users' updates of the last round go once more through the run's own
        postprocessors, as they are and enlarged, with and without one of them. The
        findings are added to the result. Probe after the first round, or at the end.

        Args:
            users: How many of them are removed, one at a time.
            seed: Selects which.
        """
        if not self._updates:
            raise InvalidRunError(
                "there is no user to probe with: probe after a round of training, with "
                "a backend that has postprocessors=audit.around([...])"
            )
        report = probe_users(
            self._after, self._updates, norm=self._clip, users=users, seed=seed
        )
        return self._audit.probed(report)

    def save(self, path: str | Path) -> None:
        """Write the observations so far to a file; it does not contain the key."""
        self._audit.save(path, self._visits.saved())

    def resume(self, path: str | Path) -> None:
        """Continue from a file that ``save`` wrote, with the same key and design.

        The program itself must restore model, optimizer and mechanism.
        """
        state = self._audit.read_state(path)
        self._audit.resume(state)
        self._visits.restore(state)

    @progress_note("finishing the audit")
    def finish(self, *, claim: Guarantee | None = None) -> Result:
        """Guess the coins, test the claims and return the result.

        Args:
            claim: The accountant's privacy curve, if it is not the one read from it.
        """
        findings = [*self._checks(), *self._faults()]
        if self._strategy is not None and self._participation is not None:
            check, wrong = check_strategy(
                self._strategy,
                steps=self._strategy.steps,
                separation=self._participation.every,
                most=self._participation.most,
                claimed=float(np.sqrt(self._times)),
            )
            findings += (check, wrong) if wrong else (check,)
        claim = claim_of(self._accountant) if claim is None else claim
        return self._audit.finish(claim=claim, findings=findings)

    def _begin(self) -> NDArray[np.int64]:
        added = self._audit.guard.run(self._begin_round)
        return np.zeros(0, np.int64) if added is None else added

    def _begin_round(self) -> NDArray[np.int64]:
        """Begin a round, and return the canaries to add to its cohort."""
        self._clip, self._begun = clipping_bound(self._inside), True
        self._came[:], self._real[:] = 0, 0.0
        self._updates = []
        self._visits.begin()
        if isinstance(self._insertion, Sampled):
            return np.zeros(0, np.int64)
        self._check_joins()
        return self._audit.draws.present(self.rounds)

    def _check_joins(self) -> None:
        """Refuse to let canaries participate more often than the claim covers."""
        joins = self._joins(self.rounds + 1)
        if self._rate == 1 and joins > self._times:
            raise InvalidRunError(
                f"in round {self.rounds + 1} a canary would take part for the "
                f"{joins}th time, and the accountant counts with "
                f"num_compositions={self._times}; pass insertion="
                "Added(participation=...) that takes turns as your users do, or an "
                "accountant of all rounds"
            )

    def _joins(self, rounds: int) -> int:
        """Return in how many of the first rounds a canary may participate."""
        return (self._participation or Participation()).participations(rounds)

    def _sent(self, stats: MappedVectorStatistics, user: UserContext) -> None:
        canary = canary_of(user.user_id)
        if canary is None:
            self._audit.guard.run(self._keep, stats, user)
            return
        # Its data are a real user's, so after a failure its update is set to zero.
        value = self._audit.guard.run(self._value, stats, canary) or 0.0
        self._places.put(stats, canary // self._per_coordinate, value)

    def _keep(self, stats: MappedVectorStatistics, user: UserContext) -> None:
        if len(self._updates) < _UPDATES_KEPT:
            self._updates.append(Update.of(stats, user))

    def _value(self, stats: MappedVectorStatistics, canary: int) -> float:
        self._came[canary] += 1
        # pfl sums statistics times weight: a user's own update is this over the weight.
        included = bool(self._audit.draws.included[canary])
        return _CANARY_NORM * self._clip * float(stats.weight) if included else 0.0

    def _sum_real_update(
        self, stats: MappedVectorStatistics, user: UserContext
    ) -> None:
        if canary_of(user.user_id) is None:
            self._real += self._places.read(stats)

    def _read_before_noise(self, stats: MappedVectorStatistics) -> None:
        self._before = self._places.read(stats)

    def _read_after_noise(self, stats: MappedVectorStatistics) -> None:
        if not self._begun:
            raise InvalidRunError(
                "a round was made whose users did not come from audit.dataset(...); "
                "hand the backend training_data=audit.dataset(users)"
            )
        self._check_added()
        noisy = self._places.read(stats)
        joined = self._came * self._audit.draws.included
        inside = joined.reshape(self._places.layout.coordinates, -1).sum(axis=1)
        sums = (noisy - self._real) / self._clip
        self._audit.observe(sums, inside, noise=self._noise, clip=self._clip)
        seen = [part[self._watched] / self._clip for part in (self._before, noisy)]
        self._audit.watch_noise(seen[1] - seen[0], self._noise, seen)
        self._visits.end()
        self._begun = False

    def _check_added(self) -> None:
        """Refuse a round in which canaries were lost or counted twice."""
        if isinstance(self._insertion, Sampled):
            return
        added = np.zeros_like(self._came)
        added[self._audit.draws.present(self.rounds)] = 1
        if not np.array_equal(added, self._came):
            raise InvalidRunError(
                f"{int(added.sum())} canary users were added to the cohort of round "
                f"{self.rounds + 1} and {int(self._came.sum())} sent an update; use "
                "postprocessors=audit.around([...]), and one audit for one backend"
            )

    def _separation(self) -> int:
        """Return the rounds between a user's visits that the strategy relies on."""
        if self._strategy is None or self._participation is None:
            return 1
        return self._participation.every

    def _checks(self) -> Iterator[Finding]:
        yield canary_tested(Stage.CLIPPING, "users.cut", norm=_CANARY_NORM)
        yield canary_tested(Stage.AGGREGATION, "users.pass")
        yield not_checked(Stage.GRADIENTS, "probe.would_users")
        if isinstance(self._insertion, Sampled):
            yield canary_tested(Stage.SAMPLING, "users.pass")
        else:
            yield not_checked(Stage.SAMPLING, "users.sampled_would")
        yield not_checked(Stage.SIDE_PATHS, "side_paths.users_sum_only")

    def _faults(self) -> Iterator[Finding]:
        yield from self._visits.findings(
            self._rate,
            separation=self._separation(),
            # If users are sampled, the claim covers participation in every round.
            most=self._times if self._rate == 1 else None,
        )
        joins = self._joins(self.rounds)
        if joins > self._times:
            yield fault(
                Stage.ACCOUNTING,
                "users.more_rounds",
                rounds=joins,
                accounted=self._times,
            )


@final
class _Coming:
    """The data set's interface to the audit: which canaries to add, but no coins."""

    def __init__(self, audit: PflAudit) -> None:
        self._audit = audit

    def begin(self) -> NDArray[np.int64]:
        return self._audit._begin()

    def came(self, user: object) -> None:
        audit, canary = self._audit, canary_of(user)
        if canary is None:
            audit._audit.guard.run(audit._visits.came, user)
        else:
            audit._visits.picked(canary)


def _participation(
    insertion: Insertion, strategy: Matrix | None, *, times: int
) -> Participation | None:
    """Return the participation schedule; refuse one the claim does not cover."""
    participation = insertion.participation if isinstance(insertion, Added) else None
    if strategy is None:
        return participation
    if participation is None:
        raise InvalidInputError(
            "correlated noise is accounted for users who take part every so many "
            "rounds: pass insertion=Added(participation=Participation("
            "every=min_separation, cohorts=...)), with the mechanism's min_separation"
        )
    joins = participation.participations(strategy.steps)
    if joins > times:
        raise InvalidInputError(
            f"with {participation} a canary takes part {joins} times in "
            f"{strategy.steps} rounds, and the accountant counts with {times}; pass "
            "Participation(every=...) of the mechanism's min_separation"
        )
    return participation


def _check_alone() -> None:
    """Refuse several processes: each of them sees only some of the users."""
    world = int(get_default_framework_module().distributed.world_size)
    if world > 1:
        raise InvalidInputError(
            f"pfl runs in {world} processes, each with a part of the users; audit a "
            "run in one process"
        )
