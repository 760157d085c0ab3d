"""Audits Opacus training run by Hugging Face's ``Trainer`` or TRL's.

Needs the extra ``huggingface``. ``Trainer`` does not support Opacus, so it needs some
setup, described in ``docs/how-to/audit-opacus.md``. Of this, the
callback clears what Opacus keeps of a step and refuses arguments that would break the
privacy of training, and ``step_of`` returns the trainer's own step, for a probe. A loss
that keeps records separate is ``dpaudit.training.language_models.RecordLoss``.
"""

from pathlib import Path
from typing import Any, Final, final

from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit.game.result import Result
from dpaudit.training.opacus.step_runner import Batch, Step
from dpaudit.training.opacus.trainer import Attach, TrainerAudit

try:
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtraError.of(
        "auditing in Hugging Face's Trainer needs transformers and accelerate",
        "huggingface",
    ) from error

__all__ = ["TrainerAuditCallback", "step_of"]

_STATE: Final = "dpaudit.npz"


@final
class TrainerAuditCallback(TrainerCallback):
    """Audits one ``Trainer.train`` with an optimizer and a loader that Opacus made.

    The audit is attached when training starts, its state is written into ``Trainer``'s
    checkpoints, and it is finished when training ends. After each step it clears what
    Opacus keeps of it, which ``Trainer`` does not.

    Args:
        attach: Returns an ``OpacusAudit``, given optimizer, loader and number of steps.
    """

    def __init__(self, attach: Attach) -> None:
        self._audit = TrainerAudit(attach)

    @property
    def result(self) -> Result:
        """The result of the audit, once training has ended."""
        return self._audit.result

    def on_train_begin(
        self,
        args: Any,  # noqa: ANN401 (the framework's)
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Attach the audit, and resume from a checkpoint if training does."""
        del control
        _check(args)
        optimizer = kwargs["optimizer"]
        if isinstance(optimizer, AcceleratedOptimizer):
            optimizer = optimizer.optimizer
        self._audit.begin(
            optimizer,
            kwargs["train_dataloader"],
            steps=state.max_steps,
            ranks=args.world_size,
            resume=lambda own: own.resume(_path(args, state), done=state.global_step),
        )

    def on_step_end(
        self,
        args: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Clear per-record gradients, as Opacus requires before the next step."""
        del args, state, control
        kwargs["optimizer"].zero_grad()

    def on_save(
        self,
        args: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Write the audit's state, without the key, into the checkpoint."""
        del control, kwargs
        self._audit.save(_path(args, state))

    def on_train_end(
        self,
        args: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Finish the audit: guess, and compute the result."""
        del args, state, control, kwargs
        self._audit.end()


def _path(args: Any, state: Any) -> Path:  # noqa: ANN401
    """Return the path of the audit's state in the current step's checkpoint."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / _STATE


def _check(args: Any) -> None:  # noqa: ANN401
    """Refuse arguments with which ``Trainer`` would break Opacus' guarantee."""
    if args.max_grad_norm:
        raise InvalidInputError(
            f"max_grad_norm={args.max_grad_norm}: Trainer would clip the sum of a "
            "batch, and log its norm without noise; Opacus clips record by record. Set "
            "max_grad_norm=0.0"
        )
    if args.gradient_accumulation_steps > 1:
        raise InvalidInputError(
            f"gradient_accumulation_steps={args.gradient_accumulation_steps}: each "
            "batch of Opacus' loader is a sample by itself, so that a record could be "
            "in one step several times, and ghost clipping keeps the last batch only. "
            "Set it to 1 and give the loader the whole batch; ghost clipping and "
            "gradient checkpointing save memory"
        )


def step_of(trainer: Any) -> Step:  # noqa: ANN401
    """Return the trainer's own step on a batch, for ``OpacusAudit.probe``.

    Args:
        trainer: A ``Trainer`` whose model, optimizer and loader are private.
    """

    def step(batch: Batch) -> None:
        trainer.optimizer.zero_grad()
        (given,), count = trainer.get_batch_samples(
            iter([batch]), 1, trainer.args.device
        )
        trainer.training_step(trainer.model, given, count)
        trainer.optimizer.step()

    return step
