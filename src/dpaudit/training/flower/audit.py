"""Audit federated training with Flower, by canary clients.

Each canary is a client whose update is one coordinate, of the clipping norm once it is
clipped. The audit wraps the strategy that adds noise: it sees the model that is sent
out, adds or instructs canary clients, and sees the model aggregated from all replies.
The difference of the two models, times the number of sampled clients and over the
clipping norm, is a noisy sum: a canary adds 1 to it, and the noise has the stated
multiplier as its standard deviation.

The participation schedule is public, so there is no amplification. A canary in ``k``
rounds of noise ``z`` is a Gaussian mechanism with ``mu = sqrt(k) / z``, and this claim
is tested as well as the design's. Neighbours differ in one client, who contributes an
update or zero (zero-out): counts and weights stay.

A round that the strategy does not aggregate releases nothing and is not counted; its
canaries join the next one. A canary node that does not answer contributes nothing,
whatever its coin. The result reports both.
"""

from collections.abc import Collection, Iterator, Sequence
from math import sqrt
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.likelihood import State, saved_counts, saved_rows
from dpaudit.dpsgd.participation import Participation
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.findings import Finding, Stage, fault, inspected, noted
from dpaudit.game.result import Result
from dpaudit.game.setting import Setting, Unit
from dpaudit.privacy.guarantees import Adjacency, GaussianDP, Guarantee
from dpaudit.training.audit import TrainingAudit, coordinates_needed, per_coordinate
from dpaudit.training.flower.messages import AuditedStrategy, is_newer
from dpaudit.training.flower.probing import Mod, probe_clients
from dpaudit.training.flower.rounds import Round, in_turn, open_round, taking_part
from dpaudit.training.flower.setup import (
    Insertion,
    Nodes,
    Replies,
    Stated,
    canary_clients,
    checks_of_users,
    clips_on_clients,
    insertion_setting,
    takes_mean,
)
from dpaudit.training.guard import Guard
from dpaudit.training.layout import Arrays, Layout
from dpaudit.training.probe.report import LEAST, Sensitivity
from dpaudit.training.visits import Visits

__all__ = ["FlowerAudit"]

_ROUNDS: Final = "rounds"
_NORM: Final = "norm"


@final
class FlowerAudit:
    """Audits one federated training run.

    Example:
        See ``examples/flower_users.py``; these lines are added to a server's main::

            audit = FlowerAudit(strategy, arrays, design=design, key=key)
            strategy = audit.wrap()
            strategy.start(grid, arrays, num_rounds=50)
            print(audit.finish())
    """

    def __init__(  # noqa: PLR0913 (each is something that is fixed beforehand)
        self,
        strategy: Any,  # noqa: ANN401 (one of two kinds, or like one of them)
        model: Any,  # noqa: ANN401
        *,
        design: Design,
        key: Key,
        insertion: Insertion = Replies(),  # noqa: B008 (a frozen value)
        participation: Participation | None = None,
        users: int | None = None,
        examples: int = 1,
        in_order: bool = False,
        unchecked: Collection[str] = (),
    ) -> None:
        """Read the strategy's parameters; ``wrap`` attaches the audit.

        Args:
            strategy: The one that adds noise, of ``flwr.serverapp.strategy``. Its
                ``num_sampled_clients`` counts canary clients too; see
                ``canary_clients``.
            model: The trained model: an ``ArrayRecord``, or a list of arrays.
            design: Fixed beforehand. Publish ``self.commitment`` before training.
            key: The secret of this run; never use one twice.
            insertion: How canary clients are inserted: ``Replies()`` or ``Nodes()``.
            participation: The participation schedule; all clients in every round if
                left out. ``Participation(every=50, cohorts=50)``: each in one of 50
                rounds. Real clients that participate more often are reported.
            users: Number of clients without canaries, if they are sampled with
                ``Nodes(sample_rate=...)``: how often each participates is then compared
                with that rate.
            examples: Number of examples that a canary client reports.
            in_order: Whether replies are added up in an order given by their content.
                Sums of floats depend on the order in which clients answer, so only
                then is a repeated run equal to the last bit.
            unchecked: Stages you leave unchecked, among ``"sampling"``,
                ``"gradients"``, ``"clipping"`` and ``"interference"`` (what comes after
                the noise). A stage that is neither checked nor listed makes the audit
                inconclusive. Nothing here checks the last.
        """
        _validate.whole_number("examples", examples, least=1)
        if not isinstance(insertion, Replies | Nodes):
            raise InvalidInputError(
                f"insertion must be Replies() or Nodes(), got {insertion!r:.60}"
            )
        self._flwr_strategy, self._stated = strategy, Stated.by(strategy)
        self._insertion, self._participation, self.examples = (
            insertion,
            participation,
            examples,
        )
        self.in_order = in_order
        self._check(strategy)
        self._on_clients = clips_on_clients(strategy)
        self._norm = insertion.norm
        if self._on_clients and isinstance(insertion, Replies):
            self._norm = 1.0  # as if the client had clipped it
        self._per_coordinate = per_coordinate(design)
        self._model = arrays_of(model)
        self._layout = Layout.uniform(
            (each.shape for each in self._model),
            coordinates_needed(design),
            key=key,
            floats=[np.issubdtype(each.dtype, np.floating) for each in self._model],
        )
        self._clients = canary_clients(design, participation)
        rate = insertion.sample_rate if isinstance(insertion, Nodes) else 1.0
        self._noise = Stated.multiplier(strategy)
        self._audit = TrainingAudit(
            design=design,
            key=key,
            sample_rate=rate,
            observed_setting=Setting(
                framework="Flower",
                dimension=self._layout.dimension,
                rate=rate,
                insertion=insertion_setting(insertion, examples=examples),
                noise=self._noise or None,
                unit=Unit.USER,
            ),
            knows_real_sums=False,
            groups=self._layout.groups,
            by_program=True,  # the strategy clips, weighs and adds them
            participation=participation,
            unchecked=unchecked,
        )
        self.design, self.commitment = self._audit.design, self._audit.commitment
        picked = isinstance(insertion, Nodes) and rate < 1
        self._rate = rate
        self._visits = Visits(users, canaries=design.canaries if picked else 0)
        self._now: Round | None = None
        self._lost, self._silent, self._beyond = 0, 0, 0
        self._share = 1.0  # smallest share of the stated clients that answered

    @property
    def insertion(self) -> Insertion:
        """How canary clients are inserted."""
        return self._insertion

    @property
    def rounds(self) -> int:
        """Number of observed rounds."""
        return self._audit.likelihood.steps

    def wrap(self) -> AuditedStrategy:
        """Return the strategy to start: the given one, wrapped in the audit."""
        if not is_newer(self._flwr_strategy):
            kind = type(self._flwr_strategy)
            raise InvalidInputError(
                "wrap() is for strategies of flwr.serverapp.strategy, and this is a "
                f"{kind.__name__} of {kind.__module__}; take its successor there"
            )
        return AuditedStrategy(self._flwr_strategy, self)

    def begin(self, arrays: Arrays) -> Round | None:
        """Return the canary clients' answers in the round that begins. Secret.

        To be called by the wrapper strategy. A round that was begun and not ended
        begins anew. Once the audit has failed, all canaries answer with a negligible
        update, since noise is scaled to the number of sampled clients. None if they
        cannot answer at all.

        Args:
            arrays: The model, as it is sent.
        """
        included = self._audit.draws.included
        self._now = self._audit.guard.run(self._opened, arrays, included)
        if self._now is None:
            return Guard().run(self._opened, arrays, np.zeros_like(included))
        return self._now

    def _opened(self, arrays: Arrays, included: NDArray[np.bool_]) -> Round:
        """Return a round in which the included canaries whose turn it is contribute."""
        step, size = self._audit.likelihood.steps, self._per_coordinate
        mine = in_turn(
            self._participation,
            step,
            coordinates=self._layout.coordinates,
            per_coordinate=size,
        )
        canaries = np.arange(len(mine))
        if isinstance(self._insertion, Replies):
            canaries = taking_part(mine, self._clients)
        inside = mine & included
        return open_round(
            arrays,
            self._layout,
            Stated.by(self._flwr_strategy),
            canaries=canaries,
            inside=inside[canaries],
            per_coordinate=size,
            norm=self._norm,
            cut=self._insertion.norm > 1,
        )

    def end(
        self,
        arrays: Arrays | None,
        *,
        replies: int,
        asked: Collection[int] | None = None,
        heard: Collection[int] | None = None,
        clients: Collection[object] = (),
    ) -> None:
        """Record the outcome of a round.

        Args:
            arrays: The model that the strategy returned; None if it aggregated nothing.
            replies: Number of clients that answered.
            asked: Canaries that were sampled; all that participate if left out.
            heard: Canaries that answered; all that participate if left out.
            clients: Names of the real clients that answered.
        """
        self._audit.guard.run(self._read, arrays, replies, asked, heard, clients)

    def _read(
        self,
        arrays: Arrays | None,
        replies: int,
        asked: Collection[int] | None,
        heard: Collection[int] | None,
        clients: Collection[object],
    ) -> None:
        now, self._now = self._now, None
        if now is None:
            raise InvalidRunError(
                "a round was aggregated that was not configured: use the strategy that "
                "wrap() returned for both"
            )
        if arrays is None:
            self._lost += 1
            return
        self._visits.begin()
        for client in clients:
            self._visits.came(client)
        for canary in heard or ():
            self._visits.picked(canary)
        self._visits.end()
        taking = {answer.canary for answer in now.answers}
        silent = set() if heard is None else taking - set(heard)
        self._silent += len(silent if asked is None else silent & set(asked))
        self._beyond += replies > now.stated.clients
        self._share = min(self._share, replies / now.stated.clients)
        scale = now.stated.clients / now.stated.norm
        seen = (self._layout.values(arrays) - now.sent) * scale
        self._audit.observe(
            seen,
            now.joined(silent),
            noise=Stated.multiplier(self._flwr_strategy) or None,
            clip=now.stated.norm,
        )

    def probe(
        self,
        model: Any = None,  # noqa: ANN401
        *,
        examples: Sequence[int] = (1, 20),
        clients: int = 8,
        mods: Sequence[Mod] = (),
        seed: int = 0,
    ) -> Sensitivity:
        """Measure how much one client changes the mean, without noise.

        A copy of the strategy, with its noise off, aggregates clients with chosen
        updates and numbers of examples. The findings are added to the result.

        Args:
            model: The model to probe at; the one that the audit was created with if
                left out.
            examples: Numbers of examples that your clients have, including the fewest
                and the most.
            clients: Number of clients in a probed round, 3 or more.
            mods: The clients' mods for their updates, such as ``fixedclipping_mod``, if
                they clip.
            seed: Of their updates.
        """
        report = probe_clients(
            self._flwr_strategy,
            self._model if model is None else arrays_of(model),
            examples=examples,
            clients=clients,
            mods=mods,
            seed=seed,
        )
        self._audit.probed(report)
        few, many = min(examples), max(examples)
        if few < many and not (report.faults or report.unseen):
            alike = inspected(
                Stage.AGGREGATION, "clients.examples_alike", few=few, many=many
            )
            self._audit.add(alike)
        return report

    def save(self, path: str | Path) -> None:
        """Write the observations so far to a file; it does not contain the key.

        The model, and the norm of a strategy that adapts it, belong in the checkpoint
        of the training run.
        """
        counts = np.array([self._lost, self._silent, self._beyond])
        norm = np.array([Stated.by(self._flwr_strategy).norm, self._share])
        more: State = {_ROUNDS: counts, _NORM: norm, **self._visits.saved()}
        self._audit.save(path, more)

    def resume(self, path: str | Path) -> None:
        """Continue from a file that ``save`` wrote, with the same key and design."""
        state = self._audit.read_state(path)
        norm, share = saved_rows(state, _NORM, (2,))
        stated = Stated.by(self._flwr_strategy).norm
        if norm != stated:
            raise InvalidRunError(
                f"the audit was saved at a clipping norm of {norm!r}, and the strategy "
                f"states {stated!r}; set strategy.clipping_norm to what it was"
            )
        self._lost, self._silent, self._beyond = saved_counts(state, _ROUNDS, 3)
        self._share = float(share)
        self._visits.restore(state)
        self._audit.resume(state)

    def claim(self) -> GaussianDP | None:
        """Return the guarantee of the stated noise over the observed rounds."""
        rounds = self.rounds
        if not (self._noise and rounds):
            return None
        return GaussianDP(
            mu=sqrt(self._most()) / self._noise, adjacency=Adjacency.ZERO_OUT
        )

    def _most(self) -> int:
        """Return the most rounds so far in which one client may have participated."""
        turns = self._participation or Participation()
        cohorts = range(turns.cohorts)
        return max(turns.participations(self.rounds, cohort) for cohort in cohorts)

    def finish(self, *, claim: Guarantee | None = None) -> Result:
        """Guess the coins, test the claims and return the result.

        Args:
            claim: The claim to test besides the design's, such as an accountant's; the
                guarantee of the stated noise if left out.
        """
        checks = checks_of_users(
            self._insertion,
            on_clients=self._on_clients,
            examples=self.examples,
            in_turn=self._participation is not None,
        )
        return self._audit.finish(
            claim=self.claim() if claim is None else claim,
            findings=[
                *checks,
                *self._visits.findings(
                    self._rate, most=self._most() if self._participation else None
                ),
                *self._faults(),
                *self._remarks(),
            ],
            unmodelled=self._unmodelled(),
        )

    def _unmodelled(self) -> Finding | None:
        """Return why canaries may not have exactly the clipping norm."""
        if self._lost or self._silent or self._beyond or self._share != 1:
            return noted("forecast.other_clients")
        return None if self._norm >= 1 else noted("forecast.small")

    def _check(self, strategy: object) -> None:
        """Refuse a strategy that cannot be audited with these insertions."""
        counting = getattr(strategy, "accountant", None) is not None
        if counting and isinstance(self._insertion, Replies):
            raise InvalidInputError(
                "the strategy's accountant wants a message for each sampled client, "
                "and canary clients that are replies have none; pass "
                "insertion=Nodes(), or leave the accountant out and hand "
                "finish(claim=...) what it states"
            )

    def _faults(self) -> Iterator[Finding]:
        if self._share < 1 / (1 + LEAST) and takes_mean(self._flwr_strategy):
            clients = self._stated.clients
            yield fault(
                Stage.AGGREGATION,
                "clients.fewer_answered",
                answered=self._share * clients,
                clients=clients,
            )

    def _remarks(self) -> Iterator[Finding]:
        if self._lost:
            yield noted("clients.rounds_lost", rounds=self._lost)
        if self._silent:
            yield noted("clients.silent", answers=self._silent)
        if self._beyond:
            yield noted("clients.more_answered", rounds=self._beyond)


def arrays_of(model: Any) -> list[NDArray[Any]]:  # noqa: ANN401
    """Return the arrays of a model, an ``ArrayRecord`` or a list of arrays."""
    if hasattr(model, "to_numpy_ndarrays"):
        return list(model.to_numpy_ndarrays())
    if not isinstance(model, Sequence) or not all(hasattr(a, "dtype") for a in model):
        raise InvalidInputError(
            "model must be an ArrayRecord, or a list of numpy arrays, got "
            f"{type(model).__name__}"
        )
    return [np.asarray(each) for each in model]
