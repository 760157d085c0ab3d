import pytest
import torch
from private_runs import CANARIES, attach, private_run
from transformers import Trainer, TrainerCallback, TrainingArguments

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.text.findings import sentence
from dpaudit.training.opacus.huggingface import TrainerAuditCallback

EPOCHS = 4  # of ten steps

# Trainer remarks on what it does not find, and on itself.
pytestmark = pytest.mark.filterwarnings("ignore")


class ClearGradients(TrainerCallback):
    """Clears what Opacus keeps; Trainer itself only clears the model's gradients."""

    def on_step_end(self, args, state, control, **kwargs):
        kwargs["optimizer"].zero_grad()


class PrivateTrainer(Trainer):
    """A user's trainer: model, optimizer and loader were made private before."""

    def __init__(self, run, arguments, callbacks, loader):
        plain = torch.optim.lr_scheduler.ConstantLR(
            run.optimizer.original_optimizer, factor=1.0
        )
        super().__init__(
            model=run.model,
            args=arguments,
            optimizers=(run.optimizer, plain),
            callbacks=[ClearGradients(), *callbacks],
        )
        self.model_accepts_loss_kwargs = False
        self._run, self._loader = run, loader

    def get_train_dataloader(self):
        return self._loader

    def compute_loss(self, model, inputs, **_):
        pixels, labels = inputs
        return self._run.criterion(model(pixels), labels)


def fit(run, folder, callbacks, *, loader=None, resume=None, stop=None, save=False):
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        max_steps=-1,
        report_to=[],
        use_cpu=True,
        save_strategy="epoch" if save else "no",
        logging_strategy="no",
        max_grad_norm=0.0,
        disable_tqdm=True,
        ignore_data_skip=True,
    )
    callbacks = [*callbacks, *([stop] if stop else [])]
    trainer = PrivateTrainer(run, arguments, callbacks, loader or run.loader)
    trainer.train(resume_from_checkpoint=resume)


class StopAfter(TrainerCallback):
    """Breaks a training off, as a deadline would."""

    def __init__(self, epochs):
        self._epochs = epochs

    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.epoch >= self._epochs


def audited(run):
    return TrainerAuditCallback(lambda optimizer, loader, steps: attach(run))


def test_canaries_that_are_records_ride_along(tmp_path):
    run = private_run(canaries=CANARIES)
    audit = attach(run)
    callback = TrainerAuditCallback(lambda *_: audit)
    fit(run, tmp_path, [callback], loader=audit.data_loader)
    assert callback.result.training.steps == 10 * EPOCHS
    (remark,) = callback.result.training.remarks
    # By the Trainer, for everybody who names no seed.
    assert remark.code == "noise.fixed_seed"
    assert "a fixed seed" in sentence(remark)


def test_records_on_another_loader_are_refused(tmp_path):
    run = private_run(canaries=CANARIES)
    with pytest.raises(InvalidInputError, match=r"audit\.data_loader"):
        fit(run, tmp_path, [audited(run)])


def test_an_accountant_that_forgot_the_first_half_is_refused(tmp_path):
    run = private_run()
    fit(run, tmp_path, [audited(run)], stop=StopAfter(2), save=True)
    run = private_run()
    with pytest.raises(InvalidRunError, match="has counted 0 now"):
        fit(run, tmp_path, [audited(run)], resume=str(tmp_path / "checkpoint-20"))


def test_a_checkpoint_without_the_audit_is_refused(tmp_path):
    run = private_run()
    fit(run, tmp_path, [], stop=StopAfter(1), save=True)
    run = private_run()
    with pytest.raises(InvalidRunError, match="after 10 steps"):
        fit(run, tmp_path, [audited(run)], resume=str(tmp_path / "checkpoint-10"))
