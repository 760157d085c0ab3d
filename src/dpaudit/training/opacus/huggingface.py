"""An audit of Opacus training that Hugging Face's ``Trainer`` runs.

Needs the extra ``huggingface``. ``Trainer`` does not know Opacus, so some things have
to be told it first: ``docs/how-to/audit-opacus-with-hugging-face.md`` says which.
"""

from pathlib import Path
from typing import Any, final

from dpaudit.errors import MissingExtraError
from dpaudit.game.result import Result
from dpaudit.training.opacus.trainer import Attach, TrainerAudit

try:
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtraError.of(
        "auditing in Hugging Face's Trainer needs transformers and accelerate",
        "huggingface",
    ) from error

__all__ = ["AuditCallback"]

_STATE = "dpaudit.npz"


@final
class AuditCallback(TrainerCallback):
    """Audits one ``Trainer.train`` with an optimizer and a loader that Opacus made.

    The audit is attached when training starts, its state is written into ``Trainer``'s
    checkpoints, and it is finished when training ends.

    Args:
        attach: From optimizer, loader and number of steps to an ``OpacusAudit``.
    """

    def __init__(self, attach: Attach) -> None:
        self._audit = TrainerAudit(attach)

    @property
    def result(self) -> Result:
        """What the audit shows, once the training has ended."""
        return self._audit.result

    def on_train_begin(
        self,
        args: Any,  # noqa: ANN401 (the framework's)
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Attach, and go on from a checkpoint if training does."""
        del control
        optimizer = kwargs["optimizer"]
        if isinstance(optimizer, AcceleratedOptimizer):
            optimizer = optimizer.optimizer
        self._audit.begin(
            optimizer,
            kwargs["train_dataloader"],
            steps=state.max_steps,
            ranks=args.world_size,
        )
        self._audit.resume(_path(args, state), done=state.global_step)

    def on_save(
        self,
        args: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Write what was seen so far into the checkpoint; it holds no key."""
        del control, kwargs
        self._audit.save(_path(args, state))

    def on_train_end(
        self,
        args: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Guess, and judge."""
        del args, state, control, kwargs
        self._audit.end()


def _path(args: Any, state: Any) -> Path:  # noqa: ANN401
    """Return where the state is kept that belongs to so many steps."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / _STATE
