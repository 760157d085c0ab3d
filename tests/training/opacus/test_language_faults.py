"""Faults of private fine-tunings, planted in real runs: each is caught or named.

Audited by default: with the model, and a probe of the step before training. The honest
twin of each is clean.
"""

import pytest
import torch
from language_runs import (
    IGNORED,
    LENGTH,
    ByRecord,
    audited,
    longest,
    padded,
    private_language_model,
    sentences,
    step_of,
    token_losses,
)
from private_runs import UNPROBED, attach

from dpaudit.game.findings import Stage
from dpaudit.game.text.findings import fault_parts, sentence

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]

MODES = pytest.mark.parametrize("mode", ["hooks", "ghost"])


class ByLongest(ByRecord):
    """A record's loss over the length of the longest in its batch."""

    def forward(self, logits, labels):
        each = token_losses(logits, labels)[0].mean(1)
        return each if self.reduction == "none" else each.mean()


class OverTokens(ByRecord):
    """The loss over all tokens of a batch, as models have it by themselves."""

    def forward(self, logits, labels):
        losses, counted = token_losses(logits, labels)
        each = losses.sum(1) * len(losses) / counted.sum()
        return each if self.reduction == "none" else each.mean()


def counted_padding(records):
    """A batch whose padding is to be learnt like any token."""
    batch = longest(records)
    labels = batch["labels"].masked_fill(batch["labels"] == IGNORED, 0)
    return batch | {"labels": labels, "attention_mask": torch.ones_like(labels)}


@MODES
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"criterion": ByLongest()}, "padding to its longest record"),
        ({"collate": counted_padding}, "padding to its longest record"),
        ({"criterion": OverTokens()}, "a mean over all their tokens"),
    ],
    ids=["over the padded length", "padding learnt", "over the batch's tokens"],
)
def test_a_loss_in_which_records_meet(fault, cause, mode):
    result, found = audited(private_language_model(mode=mode, **fault), epochs=1)
    assert result.verdict == "fault found"
    (told,) = found.faults
    assert told.stage is Stage.GRADIENTS
    assert cause in fault_parts(told)[3]


@MODES
@pytest.mark.parametrize(
    "honest",
    [
        {"criterion": ByLongest(), "collate": padded},
        {"criterion": OverTokens(), "records": sentences(shortest=LENGTH)},
    ],
    ids=["all padded to one length", "all of one length"],
)
def test_their_honest_twins(honest, mode):
    result, found = audited(private_language_model(mode=mode, **honest))
    assert not found.faults
    assert result.verdict == "no violation detected", result.reason


@MODES
def test_layers_unfrozen_later_and_trained_by_another_optimizer(mode):
    run = private_language_model(mode=mode)
    frozen = run.inside.get_base_model().lm_head.weight
    other = torch.optim.SGD([frozen], lr=0.1)

    def unfreeze(step):
        if step >= 5:
            frozen.requires_grad_(True)
            other.step()
            other.zero_grad()

    result, _ = audited(run, probed=False, between=unfreeze)
    assert result.verdict == "inconclusive"
    assert "lm_head.weight changed" in result.reason
    last = result.training.coverage.checks[[*Stage].index(Stage.SIDE_PATHS)]
    assert "lm_head.weight" in " ".join(map(sentence, last.findings))


@MODES
def test_layers_unfrozen_later_and_given_to_the_private_optimizer(mode):
    run = private_language_model(mode=mode)
    frozen = run.inside.get_base_model().lm_head.weight

    def unfreeze(step):
        if step == 5:
            frozen.requires_grad_(True)
            run.optimizer.original_optimizer.add_param_group({"params": [frozen]})

    if mode == "hooks":  # Opacus itself finds no gradients of it
        with pytest.raises(ValueError, match="not initialized"):
            audited(run, probed=False, between=unfreeze)
        return
    result, _ = audited(run, probed=False, between=unfreeze)
    assert result.verdict == "invalid run"
    assert "trains other parameters" in result.reason


@MODES
def test_adapters_merged_into_the_frozen_weights(mode):
    run = private_language_model(mode=mode)

    def merge(step):
        if step == 9:
            run.inside.merge_adapter()
            run.inside.unmerge_adapter()
        if step == 11:
            for module in run.inside.modules():
                if hasattr(module, "get_delta_weight"):
                    added = module.get_delta_weight("default")
                    module.get_base_layer().weight.data += added
                    module.lora_B["default"].weight.data.zero_()

    result, _ = audited(run, probed=False, between=merge)
    assert result.verdict == "inconclusive"
    assert "q_proj.base_layer.weight changed" in result.reason


def test_a_checkpoint_resumed_with_the_old_noise(tmp_path):
    """The random state of the first step is that of the first step after resuming."""

    def parts(seeds):
        state = None
        for seed in seeds:
            run = private_language_model(mode="ghost")
            if state is not None:
                run.engine.accountant.load_state_dict(state[0])
                run.inside.load_state_dict(state[1])
                run.optimizer.load_state_dict(state[2])
            audit, step = attach(run, model=run.model, **UNPROBED), step_of(run)
            if state is not None:
                audit.resume(tmp_path / "audit")
            torch.manual_seed(seed)
            for _ in range(2):
                for batch in run.loader:
                    step(batch)
            audit.save(tmp_path / "audit")
            state = (
                run.engine.accountant.state_dict(),
                run.inside.state_dict(),
                run.optimizer.state_dict(),
            )
        return audit.finish()

    result = parts([5, 5])
    assert result.verdict == "fault found"
    assert {fault.stage for fault in result.faults} >= {Stage.NOISE_INDEPENDENCE}
    assert parts([5, 6]).verdict == "no violation detected"
