from dataclasses import replace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from private_runs import CANARIES, attach, private_run

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import sentence
from dpaudit.training.opacus.lightning import LightningAuditCallback

EPOCHS = 4  # of ten steps

# Lightning remarks on few workers, on folders that exist, and on itself.
pytestmark = pytest.mark.filterwarnings("ignore")


class Module(LightningModule):
    """A user's module: model, loss and optimizer that were made private before."""

    def __init__(self, run):
        super().__init__()
        self.run, self.model = run, run.model

    def training_step(self, batch):
        pixels, labels = batch
        return self.run.criterion(self.model(pixels), labels)

    def configure_optimizers(self):
        return self.run.optimizer

    def on_save_checkpoint(self, checkpoint):
        checkpoint["accountant"] = self.run.engine.accountant.state_dict()

    def on_load_checkpoint(self, checkpoint):
        self.run.engine.accountant.load_state_dict(checkpoint["accountant"])


def fit(run, callbacks, *, loader=None, epochs=EPOCHS, **options):
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks),
    )
    trainer.fit(Module(run), loader or run.loader, **options)


def audited(run):
    return LightningAuditCallback(lambda optimizer, loader, steps: attach(run))


def but_for_batches(result):
    """Return a result but for how many batches were fetched: Lightning looks ahead."""
    coverage = result.training.coverage
    first, *rest = coverage.checks
    assert (first.stage, first.status) == (Stage.SAMPLING, Status.INSPECTED)
    coverage = replace(coverage, checks=(replace(first, findings=()), *rest))
    return replace(result, training=replace(result.training, coverage=coverage))


def test_lightning_gives_the_result_of_the_plain_loop():
    run = private_run()
    audit = attach(run)
    torch.manual_seed(1)
    run.train(steps=10 * EPOCHS)
    plain = audit.finish()

    run = private_run()
    callback = audited(run)
    torch.manual_seed(1)
    fit(run, [callback])
    assert but_for_batches(callback.result) == but_for_batches(plain)


def test_canaries_that_are_records_ride_along():
    run = private_run(canaries=CANARIES)
    audit = attach(run)
    callback = LightningAuditCallback(lambda *_: audit)
    fit(run, [callback], loader=audit.data_loader)
    assert callback.result.training.steps == 10 * EPOCHS
    (remark,) = callback.result.training.remarks
    assert remark.code == "noise.fixed_seed"
    assert "a fixed seed" in sentence(remark)


def test_records_on_another_loader_are_refused():
    run = private_run(canaries=CANARIES)
    with pytest.raises(InvalidInputError, match=r"audit\.data_loader"):
        fit(run, [audited(run)])


def test_a_fit_that_was_broken_off_goes_on_from_its_checkpoint(tmp_path):
    run = private_run()
    keeper = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    torch.manual_seed(1)
    fit(run, [audited(run), keeper], epochs=2)
    state = torch.random.get_rng_state()

    run = private_run()  # a new process would begin like this
    callback = audited(run)
    torch.random.set_rng_state(state)
    fit(run, [callback], ckpt_path=tmp_path / "last.ckpt")

    run = private_run()
    whole = audited(run)
    torch.manual_seed(1)
    fit(run, [whole])
    assert but_for_batches(callback.result) == but_for_batches(whole.result)
    assert whole.result.training.steps == 10 * EPOCHS


def test_another_design_cannot_go_on_from_a_checkpoint(tmp_path):
    run = private_run()
    keeper = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    fit(run, [audited(run), keeper], epochs=1)
    run = private_run()
    other = LightningAuditCallback(lambda *_: attach(run, guesses=20))
    with pytest.raises(InvalidRunError, match="another audit"):
        fit(run, [other], ckpt_path=tmp_path / "last.ckpt")


def test_a_checkpoint_without_the_audit_is_refused(tmp_path):
    run = private_run()
    fit(run, [ModelCheckpoint(dirpath=tmp_path, save_last=True)], epochs=1)
    run = private_run()
    with pytest.raises(InvalidRunError, match="after 10 steps"):
        fit(run, [audited(run)], ckpt_path=tmp_path / "last.ckpt")


def test_an_accountant_that_forgot_the_first_half_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Module, "on_load_checkpoint", lambda self, checkpoint: None)
    run = private_run()
    keeper = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    fit(run, [audited(run), keeper], epochs=1)
    run = private_run()
    with pytest.raises(InvalidRunError, match="has counted 0 now"):
        fit(run, [audited(run)], ckpt_path=tmp_path / "last.ckpt")


def test_missing_noise_is_found():
    run = private_run()
    callback = audited(run)
    add_noise = run.optimizer.add_noise

    def add_little():
        run.optimizer.noise_multiplier /= 10
        add_noise()
        run.optimizer.noise_multiplier *= 10

    run.optimizer.add_noise = add_little
    fit(run, [callback])
    assert callback.result.refuted


def test_nothing_is_judged_before_the_end():
    run = private_run()
    with pytest.raises(InvalidRunError, match="has not ended"):
        _ = audited(run).result


def test_a_callback_audits_one_training_only():
    run = private_run()
    callback = audited(run)
    fit(run, [callback], epochs=1)
    with pytest.raises(InvalidRunError, match="a key of its own"):
        fit(run, [callback], epochs=1)


def test_unknown_numbers_of_steps_are_refused():
    run = private_run()
    with pytest.raises(InvalidInputError, match="number of steps must be known"):
        fit(run, [audited(run)], epochs=-1)
