"""Audits of language models as people fine-tune them: honest runs, and no alarm."""

import itertools

import pytest
import torch
from language_runs import (
    LENGTH,
    RECORDS,
    audited,
    gpt2,
    llama,
    longest,
    private_language_model,
    sentences,
    step_of,
    with_lora,
)
from private_runs import KEY, attach

from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import sentence
from dpaudit.training.opacus.insertion import canary_layout, parameter_types_of

pytestmark = pytest.mark.filterwarnings("ignore")

MODES = pytest.mark.parametrize("mode", ["hooks", "ghost"])


def with_positions(records):
    """A batch that says where each token stands, which GPT-2 with Opacus needs."""
    batch = longest(records)
    places = torch.arange(batch["input_ids"].shape[1])
    return batch | {"position_ids": places.expand(len(records), -1).clone()}


def in_one_row(records):
    """Records one after the other in one row, as collators pack without padding."""
    ids = [token for each in records for token in each["input_ids"]]
    places = [k for each in records for k in range(len(each["input_ids"]))]
    return {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([places]),
        "labels": torch.tensor([ids]),
    }


def packed_rows():
    """Rows of one length, each of several sentences or parts of them."""
    ids = [token for each in sentences(2 * RECORDS) for token in each["input_ids"]]
    starts = range(0, RECORDS * LENGTH, LENGTH)
    return [{"input_ids": ids[start : start + LENGTH]} for start in starts]


def checkpointed():
    """Adapters under gradient checkpointing, of the kind that Opacus can follow."""
    model = with_lora(llama())
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    return model


def with_head():
    return with_lora(llama(), modules_to_save=["lm_head", "embed_tokens"])


CASES = {
    "padded": {},
    "packed": {"records": packed_rows()},
    "checkpointed": {"model": checkpointed},
    "in bfloat16": {"model": lambda: with_lora(llama()).to(torch.bfloat16)},
    "head and embedding": {"model": with_head},
}


@pytest.mark.parametrize(
    ("case", "mode"),
    [
        pytest.param("checkpointed", "ghost", marks=pytest.mark.nightly),
        pytest.param("padded", "hooks", marks=pytest.mark.nightly),
        *(
            pytest.param(case, mode, marks=pytest.mark.nightly)
            for case, mode in zip(CASES, itertools.cycle(["ghost", "hooks"]))
            if case != "checkpointed"
        ),
    ],
)
def test_an_honest_fine_tuning_is_clean(case, mode):
    run = private_language_model(mode=mode, **CASES[case])
    result, found = audited(run)
    assert not found.faults
    assert not found.unseen
    assert found.clipped > 0
    assert result.verdict == "no violation detected", result.reason
    assert result.training.signal.slope == pytest.approx(1.0, abs=0.25)
    checks = {check.stage: check for check in result.training.coverage.checks}
    assert checks[Stage.GRADIENTS].status is Status.INSPECTED
    said = {
        stage: " ".join(map(sentence, check.findings))
        for stage, check in checks.items()
    }
    assert "LoRA matrices (8 parameters" in said[Stage.NOISE_SCALE]
    assert "numbers of which are not trained" in said[Stage.SIDE_PATHS]


@pytest.mark.nightly
def test_a_head_that_is_the_embedding_is_audited_with_hooks_and_refused_in_ghost():
    run = private_language_model(gpt2, collate=with_positions)
    result, found = audited(run)
    assert not found.faults
    assert result.verdict == "no violation detected", result.reason
    checks = result.training.coverage.checks
    said = {check.stage: " ".join(map(sentence, check.findings)) for check in checks}
    assert "embeddings that are heads too (1 parameter, " in said[Stage.NOISE_SCALE]
    run = private_language_model(gpt2, mode="ghost", collate=with_positions)
    with pytest.raises(NotImplementedError, match="tying"):  # by Opacus
        step_of(run)(next(iter(run.loader)))


@MODES
def test_records_that_share_a_row_are_refused(mode):
    run = private_language_model(mode=mode, collate=in_one_row)
    audit = attach(run, model=run.model)
    with pytest.raises(InvalidInputError, match="clipped as if they were one record"):
        audit.probe(step_of(run))
    audit.detach()


def test_adapters_embeddings_and_heads_each_have_their_share():
    """A quarter in equal parts, the rest by size: no kind is left out."""
    model = with_head()
    parameters = [each for each in model.parameters() if each.requires_grad]
    kinds = parameter_types_of(model, parameters)
    assert kinds.count("LoRA matrices") == 8
    assert {*kinds} == {"LoRA matrices", "embeddings", "heads"}
    dimension = sum(each.numel() for each in parameters)
    for coordinates in (100, 1000, dimension):
        layout = canary_layout(parameters, coordinates=coordinates, spread=1, key=KEY)
        for part, parameter in zip(layout.parts, parameters, strict=True):
            least = min(parameter.numel(), coordinates // (4 * len(parameters)))
            by_size = 0.7 * coordinates * parameter.numel() / dimension
            assert len(part.which) >= max(least, int(by_size))
        assert sum(len(part.which) for part in layout.parts) == coordinates
