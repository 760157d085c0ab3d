"""Audits Opacus training run by Lightning; needs the extra ``lightning``."""

from typing import Any, final

import numpy as np
import torch

from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit.game.result import Result
from dpaudit.training.opacus.trainer import Attach, TrainerAudit

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise MissingExtraError.of(
        "auditing in Lightning needs lightning", "lightning"
    ) from error

__all__ = ["LightningAuditCallback"]


@final
class LightningAuditCallback(Callback):
    """Audits one ``Trainer.fit`` of a model whose optimizer Opacus made.

    The audit is attached when training starts, its state is part of Lightning's
    checkpoints, and it is finished when training ends.

    Args:
        attach: Returns an ``OpacusAudit``, given optimizer, loader and number of steps.

    Example:
        See ``docs/how-to/audit-opacus.md``::

            def attach(optimizer, loader, steps):
                plan = plan_opacus(optimizer, loader, steps=steps, delta=1e-5)
                return OpacusAudit(
                    optimizer,
                    loader,
                    design=plan.design(),
                    key=key,
                    accountant=privacy_engine.accountant,
                )


            callback = LightningAuditCallback(attach)
            Trainer(max_epochs=10, callbacks=[callback]).fit(model)
            print(callback.result)
    """

    def __init__(self, attach: Attach) -> None:
        self._audit = TrainerAudit(attach)
        self._saved = b""

    @property
    def result(self) -> Result:
        """The result of the audit, once training has ended."""
        return self._audit.result

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach the audit, and resume from a checkpoint if one was loaded."""
        del pl_module
        if len(trainer.optimizers) != 1:
            raise InvalidInputError(
                "the model must have one optimizer, the one that make_private "
                f"returned, got {len(trainer.optimizers)}"
            )
        self._audit.begin(
            trainer.optimizers[0],
            trainer.train_dataloader,
            steps=trainer.estimated_stepping_batches,
            ranks=trainer.world_size,
            resume=lambda own: own.restore(self._saved, done=trainer.global_step),
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Finish the audit: guess, and compute the result."""
        del trainer, pl_module
        self._audit.end()

    def state_dict(self) -> dict[str, Any]:
        """Return the audit's state, without the key, as a tensor of bytes."""
        saved = np.frombuffer(self._audit.saved(), np.uint8)
        return {"audit": torch.from_numpy(saved.copy())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state from a checkpoint until training starts."""
        self._saved = state_dict["audit"].numpy().tobytes()
