"""An audit of Opacus training that Hugging Face's ``Trainer`` or TRL's runs.

Needs the extra ``huggingface``. ``Trainer`` does not know Opacus, so some things have
to be told it first: ``docs/how-to/audit-opacus-with-hugging-face.md`` says which. Of
these, the callback clears what Opacus keeps of a step and refuses what would spoil the
training's privacy, and ``step_of`` is the trainer's own step, for a probe. A loss in
which no record meets another is ``dpaudit.training.language_models.RecordLoss``.
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
        """Clear the gradients of records, without which Opacus refuses a step."""
        del args, state, control
        kwargs["optimizer"].zero_grad()

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


def _check(args: Any) -> None:  # noqa: ANN401
    """Refuse arguments by which ``Trainer`` would undo what Opacus does."""
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
    """Return what a trainer does with a batch, as ``OpacusAudit.probe`` takes it.

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
