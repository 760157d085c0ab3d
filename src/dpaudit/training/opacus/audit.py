"""An audit that rides on an Opacus run: gradient canaries in, noisy sums out.

Each canary is a gradient of full clipping norm in one coordinate of its own. Just
before Opacus adds noise to a logical step's sum, every canary that the step's own
Poisson draw picks is added: the clipping norm if its coin included it, zero if not, so
that nothing but the sum depends on the coins. Just before the wrapped optimizer steps,
the noisy sum is read back at the canaries' coordinates, which is all the guesser sees.
Insertion and reading are two objects; only the first knows the coins and the draws.

Opacus' own sampler and per-record clipping are not run through: canaries are not
records here. The result says so.
"""

from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer

from dpaudit import _validate
from dpaudit.dpsgd.posterior import DiracPosterior
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design, ThreatModel
from dpaudit.game.guessers import most_likely
from dpaudit.game.referee import Referee
from dpaudit.game.result import AuditResult, conclude
from dpaudit.training.opacus.coordinates import Coordinates, scatter_coordinates

__all__ = ["OpacusAudit", "joined"]

_NOT_EXERCISED = ("Opacus' sampler", "per-record gradients and their clipping")


@final
class OpacusAudit:
    """Audits one Opacus run from attach to finish.

    Example:
        See ``examples/opacus_digits.py``; five lines are added to a plain loop::

            rules = OneRun(guesses=100)
            design = Design(canaries=1000, rules=rules, claim=claim)
            audit = OpacusAudit(optimizer, data_loader, design=design, key=key)
            ...                      # train as before
            print(audit.finish())
    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        data_loader: DPDataLoader,
        *,
        design: Design,
        key: Key,
        layout_seed: int = 0,
    ) -> None:
        """Attach to an optimizer and a loader made by ``make_private``.

        Args:
            optimizer: Opacus' optimizer; noise and clipping norm are read from it.
            data_loader: Opacus' Poisson loader; the sampling rate is read from it.
            design: Fixed beforehand. Publish ``self.commitment`` before training.
            key: The secret of this run; never use one twice.
            layout_seed: Public seed of the canaries' coordinates.
        """
        sample_rate = _sample_rate(data_loader)
        places = scatter_coordinates(
            optimizer.params, canaries=design.canaries, seed=layout_seed
        )
        read = {
            "layout_seed": layout_seed,
            "sample_rate": sample_rate,
            "noise_multiplier": float(optimizer.noise_multiplier),
            "max_grad_norm": float(optimizer.max_grad_norm),
        }
        design = replace(
            design,
            threat_model=ThreatModel.ALL_ITERATES,  # every noisy sum is read
            setting={**design.setting, **read},
        )
        self._referee = Referee(design, key)
        self._reader = _Reader(optimizer, places, design.canaries, sample_rate)
        self._inserter = _Inserter(optimizer, places, design, key, sample_rate)
        self.commitment = self._referee.commitment

    def finish(self) -> AuditResult:
        """Leave the optimizer as it was, guess, and judge."""
        self._inserter.detach()
        posterior = self._reader.detach()
        if not self._inserter.steps:
            raise VoidAuditError("no optimizer step was seen between attach and finish")
        index, guess = most_likely(
            posterior.log_odds, guesses=self._referee.design.guesses
        )
        self._referee.submit(index, guess)
        return conclude(
            self._referee.close(),
            commitment=self.commitment,
            not_exercised=_NOT_EXERCISED,
        )


def joined(key: Key, step: int, *, canaries: int, sample_rate: float) -> NDArray[Any]:
    """Return which canaries a step's Poisson draw picks, whatever their coins."""
    return key.generator("participation", step).random(canaries) < sample_rate


@final
class _Inserter:
    """Adds the included canaries to each logical step's sum; knows the coins."""

    def __init__(
        self,
        optimizer: DPOptimizer,
        places: list[Coordinates],
        design: Design,
        key: Key,
        sample_rate: float,
    ) -> None:
        self.steps = 0
        self._optimizer, self._places = optimizer, places
        self._included = Coins(key=key, count=design.canaries).bits().astype(bool)
        self._key, self._rate = key, sample_rate
        self._add_noise = optimizer.add_noise
        optimizer.add_noise = self._insert_then_add_noise

    def _insert_then_add_noise(self) -> None:
        picked = joined(
            self._key,
            self.steps,
            canaries=len(self._included),
            sample_rate=self._rate,
        )
        gradients = self._optimizer.max_grad_norm * (picked & self._included)
        for place in self._places:
            # Opacus keeps the clipped sum as an attribute of the parameter.
            total: torch.Tensor = place.parameter.summed_grad  # type: ignore[attr-defined]
            values = torch.from_numpy(gradients[place.canaries]).to(total)
            total.view(-1).index_add_(0, place.offsets, values)
        self.steps += 1
        self._add_noise()

    def detach(self) -> None:
        self._optimizer.add_noise = self._add_noise


@final
class _Reader:
    """Reads the noisy sums at the canaries' coordinates; knows no coin and no draw."""

    def __init__(
        self,
        optimizer: DPOptimizer,
        places: list[Coordinates],
        canaries: int,
        sample_rate: float,
    ) -> None:
        self._optimizer, self._places = optimizer, places
        self._posterior = DiracPosterior(canaries=canaries, sample_rate=sample_rate)
        self._sums = np.empty(canaries)
        self._hook = optimizer.original_optimizer.register_step_pre_hook(self._read)

    def _read(self, *_: object) -> None:
        unit = self._optimizer.max_grad_norm / _divisor(self._optimizer)
        for place in self._places:
            grad = place.parameter.grad
            assert grad is not None  # Opacus has just written it
            noisy = grad.detach().view(-1)[place.offsets]
            self._sums[place.canaries] = noisy.double().cpu().numpy() / unit
        self._posterior.observe(self._sums)

    def detach(self) -> DiracPosterior:
        self._hook.remove()
        return self._posterior


def _divisor(optimizer: DPOptimizer) -> float:
    """Return what Opacus divided the noisy sum by."""
    if optimizer.loss_reduction == "sum":
        return 1.0
    return float(optimizer.expected_batch_size * optimizer.accumulated_iterations)


def _sample_rate(data_loader: DPDataLoader) -> float:
    if not isinstance(data_loader, DPDataLoader):
        raise InvalidInputError(
            "data_loader must be the Poisson loader that make_private returned, got "
            f"{type(data_loader).__name__}; without Poisson sampling the accountant's "
            "claim does not hold"
        )
    rate = float(data_loader.sample_rate)
    _validate.probability("sample_rate", rate)
    return rate
