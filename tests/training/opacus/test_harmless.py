"""An audit never harms the training run: not where it fails, nor where it is opened."""

from functools import partial

import pytest
import torch
from opacus.optimizers import DPOptimizer
from private_runs import CANARIES, KEY, UNPROBED, design_of, private_run, step_of
from private_runs import attach as attach_to
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.data import DataLoader

from dpaudit import audit_opacus
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Stage
from dpaudit.game.text.findings import fault_parts, sentence, sentences
from dpaudit.game.verdict import Verdict
from dpaudit.training.guard import Guard
from dpaudit.training.opacus import audit as opacus_audit
from dpaudit.training.opacus import insertion, side_effects
from dpaudit.training.opacus import plan as opacus_plan
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.ranks import Ranks
from dpaudit.training.opacus.sampler import SampledBatches
from dpaudit.training.opacus.setup import clip_factors
from dpaudit.training.opacus.trainer import TrainerAudit

pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Optimal order is the:UserWarning",
)

attach = partial(attach_to, accountant=None)  # whose curve takes seconds


class Planned:
    """In place of a plan, which takes seconds to make."""

    def design(self):
        return design_of()


@pytest.fixture(autouse=True)
def _planned(monkeypatch):
    monkeypatch.setattr(opacus_plan, "plan_opacus", lambda *_, **__: Planned())


def opened(run, **options):
    given = {"epochs": 4, "delta": 1e-5, "key": KEY, "announce": lambda _: None}
    given |= {"step": step_of(run)} | options
    return audit_opacus(run.engine, run.model, run.optimizer, run.loader, **given)


def weights(run):
    return torch.cat([p.detach().reshape(-1) for p in run.model.parameters()])


def trained(run, loader=None, steps=3):
    """What three steps come to, from the same random numbers."""
    torch.manual_seed(5)
    run.train(loader, steps=steps)
    return weights(run)


@pytest.fixture(scope="module")
def never_audited():
    run = private_run()
    return trained(run), run.engine.accountant.history


class WrongError(Exception):
    """What no audit raises by itself."""


def raises(error):
    def broken(*_, **__):
        raise error

    return broken


def failing_step(run, error, at):
    """The user's own step, which fails when it is run for so many times."""
    calls, own = [], step_of(run)

    def step(batch):
        own(batch)
        calls.append(1)
        if len(calls) == at:
            raise error

    return step


def twice(run):
    own = step_of(run)

    def step(batch):
        own(batch)
        own(batch)

    return step


FAILURES = {
    "key": lambda run, patch: {"key": b"no key"},
    "attaching what looks at changes": lambda run, patch: patch(
        side_effects.SideEffects, "attach", raises(WrongError())
    ),
    "the sampler": lambda run, patch: patch(
        insertion, "SumsReader", raises(WrongError())
    ),
    "canaries": lambda run, patch: patch(
        insertion, "SumInserter", raises(WrongError())
    ),
    "half of an inserter": lambda run, patch: patch(
        Attachment, "before", raises(KeyboardInterrupt())
    ),
    "the last line": lambda run, patch: patch(opacus_audit, "_RIDDEN", None),
    "saying the commitment": lambda run, patch: {
        "announce": lambda text: (
            raises(WrongError())() if "commitment" in text else None
        )
    },
    "first run of the step": lambda run, patch: {
        "step": failing_step(run, WrongError(), 1)
    },
    "Ctrl-C in the probe": lambda run, patch: {
        "step": failing_step(run, KeyboardInterrupt(), 40)
    },
    "exit in the probe": lambda run, patch: {
        "step": failing_step(run, SystemExit(), 9)
    },
    "two steps in one": lambda run, patch: {"step": twice(run)},
    "no step at all": lambda run, patch: {"step": lambda batch: None},
    "several ranks": lambda run, patch: patch(run.optimizer, "world_size", 2) or {},
}


@pytest.mark.parametrize("stage", FAILURES)
def test_an_opening_that_fails_leaves_nothing_and_can_be_repeated(stage, never_audited):
    run = private_run()
    with pytest.MonkeyPatch.context() as patches:

        def patch(owner, name, value):
            patches.setattr(owner, name, value, raising=False)
            return {}

        options = FAILURES[stage](run, patch)
        own = dict(vars(run.optimizer))
        everywhere = dict(_global_optimizer_post_hooks)  # of whatever ran before
        with pytest.raises(BaseException) as caught:  # noqa: PT011 (any of them)
            opened(run, **options)
        assert not isinstance(caught.value, AssertionError)
        assert vars(run.optimizer) == own
    inner = run.optimizer.original_optimizer
    assert not inner._optimizer_step_pre_hooks
    assert not inner._optimizer_step_post_hooks
    assert _global_optimizer_post_hooks == everywhere
    assert not isinstance(run.loader.batch_sampler, SampledBatches)
    assert torch.equal(trained(run), never_audited[0])
    assert run.engine.accountant.history == never_audited[1]
    opened(run, step=None).detach()  # with the same key


@pytest.mark.parametrize("canaries", [0, CANARIES])
def test_an_audit_that_was_given_up_leaves_optimizer_and_loader_bare(canaries):
    run = private_run(canaries=canaries)
    own, loader = dict(vars(run.optimizer)), dict(vars(run.loader))
    audit = attach(run)
    assert run.loader.batch_sampler is not loader["batch_sampler"]
    audit.detach()
    assert vars(run.optimizer) == own
    assert vars(run.loader) == loader


class OwnSGD(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


class TwoHalves(torch.optim.SGD):
    """Makes its step in two."""

    def step(self, closure=None):
        super().step(closure)
        return super().step(closure)


class Wrapping(torch.optim.Optimizer):
    """Has another optimizer make its steps."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.base = torch.optim.SGD(self.param_groups, lr=lr)

    def step(self, closure=None):
        return self.base.step(closure)


class OwnDPOptimizer(DPOptimizer):
    def step(self, closure=None):
        return super().step(closure)


@pytest.mark.parametrize("kind", [OwnSGD, TwoHalves, Wrapping])
def test_a_step_inside_a_step_counts_once(kind):
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)  # from now on it has hooks
    run = private_run(kind=kind)
    audit = attach(run, model=run.model)
    run.train(steps=6)
    result = audit.finish()
    assert result.training.steps == 6
    changed = [
        check
        for check in result.sanity_checks
        if "beside the private" in sentence(check)
    ]
    assert bool(changed) == (kind is TwoHalves)  # its second half comes after a step


def test_a_private_optimizer_of_ones_own_counts_once():
    run = private_run()
    run.optimizer.__class__ = OwnDPOptimizer
    audit = attach(run, model=run.model)
    run.train(steps=6)
    assert audit.finish().training.steps == 6


def test_a_step_that_failed_inside_the_optimizer_does_not_hide_the_next():
    run = private_run()
    audit, inner = attach(run), run.optimizer.original_optimizer
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(type(inner), "_init_group", raises(MemoryError()))
        with pytest.raises(MemoryError):
            run.train(steps=1)
    run.optimizer.zero_grad()
    run.train(steps=2)
    assert audit.finish().training.steps == 3


@pytest.mark.parametrize("canaries", [0, CANARIES])
@pytest.mark.parametrize(
    "error", [WrongError("of our own"), InvalidRunError("misused")]
)
def test_what_goes_wrong_in_a_hook_is_said_in_the_end_and_not_in_the_loop(
    canaries, error, monkeypatch
):
    run = private_run(canaries=canaries)
    audit = attach(run, model=run.model)
    run.train(audit.data_loader, steps=4)
    own, before = audit._audit.observe, weights(run)
    monkeypatch.setattr(audit._audit, "observe", raises(error))
    run.train(audit.data_loader, steps=1)
    monkeypatch.setattr(audit._audit, "observe", own)
    assert not torch.equal(weights(run), before)
    run.train(audit.data_loader, steps=2)
    result = audit.finish()
    assert result.training.steps == 4
    invalid = isinstance(error, InvalidRunError)
    assert result.verdict is (Verdict.INVALID_RUN if invalid else Verdict.INCONCLUSIVE)
    assert sentence(result.sanity_checks[2]).startswith("the audit stopped")
    assert str(error) in result.details()


def test_a_failed_audit_trains_as_if_there_was_none(monkeypatch, never_audited):
    run = private_run()
    audit = attach(run, model=run.model)
    monkeypatch.setattr(audit._reader.steps, "begin", raises(WrongError()))
    assert torch.equal(trained(run), never_audited[0])
    with pytest.raises(
        InvalidRunError, match=r"no training step was observed.*WrongError"
    ):
        audit.finish()
    attach(run).detach()  # nothing is left on it


def test_a_failed_audit_stays_failed_when_it_is_resumed(tmp_path, monkeypatch):
    run = private_run()
    audit = attach(run)
    run.train(steps=2)
    monkeypatch.setattr(audit._reader.steps, "begin", raises(WrongError("before")))
    run.train(steps=2)
    audit.save(tmp_path / "state.npz")
    audit.detach()
    again = attach(run)
    again.resume(tmp_path / "state.npz")
    run.train(steps=2)
    result = again.finish()
    assert result.training.steps == 2
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "WrongError: before" in " ".join(result.details().split())


@pytest.mark.parametrize("ended", [False, True])
def test_canaries_leave_the_data_when_nobody_overwrites_them_any_more(
    ended, monkeypatch
):
    """They are copies of the first record, whose privacy is lost to hundreds."""
    run = private_run(canaries=CANARIES)
    audit = attach(run)
    run.train(audit.data_loader, steps=2)
    if ended:
        audit.finish()
    else:
        monkeypatch.setattr(audit._reader.steps, "begin", raises(WrongError()))
        run.train(audit.data_loader, steps=1)
    first = run.loader.dataset.first
    batches = [batch for batch in audit.data_loader.batch_sampler]
    assert batches
    assert max(max(batch, default=0) for batch in batches) < first


def test_a_rank_that_failed_does_not_keep_the_others_waiting():
    run, guard, done = private_run(), Guard(), []
    ranks = Ranks(run.optimizer)
    ranks.world = 2
    ranks.add_up = lambda values: done.append(len(values)) or values
    attachment = Attachment(run.optimizer, guard, ranks)
    attachment.before(raises(WrongError()))
    attachment.add_up(lambda: [torch.ones(1)], lambda _: done.append("used"))
    attachment.before(lambda: done.append("alone"))
    run.train(steps=2)
    attachment.close()
    run.train(steps=2)
    assert done == [1, "used", 1]  # after the failure, zeros


def test_ctrl_c_in_a_hook_passes(monkeypatch):
    run = private_run()
    audit = attach(run)
    monkeypatch.setattr(audit._audit, "observe", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run.train(steps=1)


def test_weights_that_are_no_numbers_are_named_for_what_they_are():
    run = private_run()
    run.model.register_buffer("mask", torch.full((2,), -torch.inf))  # which is fine
    audit = attach(run, model=run.model)
    run.train(steps=3)
    pixels, labels = next(iter(audit.data_loader))
    run.optimizer.zero_grad()
    run.criterion(run.model(pixels * torch.nan), labels).backward()
    run.optimizer.step()
    run.train(steps=8)
    result = audit.finish()
    assert result.verdict is Verdict.INCONCLUSIVE
    text = " ".join(result.details().split())
    names = "0.weight, 0.bias, 2.weight, 2.bias"
    assert f"{names} hold NaN or infinity at the end of training" in text
    assert "changed beside" not in text


def test_two_private_models_in_one_process_are_audited_apart():
    runs = [private_run(seed=0), private_run(seed=1)]
    audits = [attach(run, model=run.model, **UNPROBED) for run in runs]
    for _ in range(3):
        for run in runs:
            run.train(steps=2)
    for audit in audits:
        result = audit.finish()
        assert result.verdict is Verdict.NO_VIOLATION_DETECTED
        (check,) = [
            e for e in result.training.coverage.checks if e.stage is Stage.SIDE_PATHS
        ]
        assert "another private optimizer made 6 steps" in sentences(check.findings)


def test_a_second_optimizer_without_privacy_is_still_noticed():
    run = private_run()
    audit = attach(run, model=run.model)
    head = nn.Linear(3, 1)
    plain = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(3):
        run.train(steps=1)
        head(torch.ones(2, 3)).sum().backward()
        plain.step()
    result = audit.finish()
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "optimizer SGD changed 3 times" in " ".join(result.details().split())


def test_a_change_after_the_last_step_is_seen():
    run = private_run()
    audit = attach(run, model=run.model)
    run.train(steps=6)
    with torch.no_grad():
        next(run.model.parameters()).add_(1.0)
    result = audit.finish()
    assert result.verdict is Verdict.INCONCLUSIVE
    said = " ".join(result.details().split())
    assert "0.weight changed after the last step of the private optimizer" in said
    (check,) = [
        e for e in result.training.coverage.checks if e.stage is Stage.SIDE_PATHS
    ]
    assert "after the last step: 0.weight" in sentences(check.findings)


def test_finish_before_training_says_so_and_works_after_it():
    run = private_run()
    audit = attach(run, model=run.model)
    with pytest.raises(
        InvalidRunError, match="no training step has run since the audit"
    ):
        audit.finish()
    run.train(steps=4)
    assert audit.finish().training.steps == 4


@pytest.mark.parametrize("part", ["both", "loader"])
def test_a_second_audit_is_refused_by_name(part):
    run, other = private_run(), private_run()
    audit = opened(run, step=None)
    second = run if part == "both" else other
    second.loader = run.loader
    with pytest.raises(InvalidRunError, match="already has an audit attached"):
        opened(second)
    audit.detach()
    opened(run, step=None).detach()


def on_meta(model):
    return model.to("meta")


def test_what_is_not_private_is_named_before_anything_is_planned():
    run, heard = private_run(), []
    plain = torch.optim.SGD(run.model.parameters(), lr=0.1)
    shuffled = DataLoader(run.loader.dataset, batch_size=20, shuffle=True)
    meta = private_run(wrap=on_meta)
    for owner, change, said in (
        (run, {"optimizer": plain}, "must be a DPOptimizer, got SGD; .*make_private"),
        (run, {"loader": shuffled}, "Poisson loader that make_private returned"),
        (
            run,
            {"step": lambda: None},
            r"accept one batch.*<lambda>\(\), which does not",
        ),
        (run, {"step": lambda x, y: None}, r"accept one batch.*missing.*'y'"),
        (run, {"step": 3}, "must be a function of a batch, got step=3"),
        (meta, {}, "on the meta device, which holds no weights"),
    ):
        given = {"optimizer": owner.optimizer, "loader": owner.loader}
        given |= {"step": step_of(owner)} | change
        with pytest.raises(InvalidInputError, match=said):
            audit_opacus(
                owner.engine,
                owner.model,
                given["optimizer"],
                given["loader"],
                epochs=1,
                delta=1e-5,
                step=given["step"],
                announce=heard.append,
            )
    assert not heard


def test_a_step_that_was_left_out_is_said_at_the_opening():
    run, heard = private_run(), []
    opened(run, step=None, announce=heard.append).detach()
    assert "per-example gradients will not be checked: pass step=" in heard[-1]


def test_a_framework_keeps_its_training_when_there_is_nothing_to_judge():
    run = private_run()
    audit = TrainerAudit(lambda *_: attach(run))
    given = {"steps": 4, "ranks": 1}
    with pytest.raises(WrongError):
        audit.begin(run.optimizer, run.loader, resume=raises(WrongError()), **given)
    audit.begin(run.optimizer, run.loader, resume=lambda own: None, **given)
    audit.end()
    with pytest.raises(InvalidRunError, match="no training step has run"):
        _ = audit.result
    attach(run).detach()


def test_a_layer_that_is_not_clipped_is_named():
    run = private_run()

    def clip_less():
        """Clip all parameters but the weight of the head."""
        params = run.optimizer.params
        factors = clip_factors(run.optimizer, [p.grad_sample for p in params])
        for k, (p, factor) in enumerate(zip(params, factors, strict=True)):
            kept = torch.ones_like(factor) if k == 2 else factor
            p.summed_grad = torch.einsum("i,i...", kept, p.grad_sample)
            p.grad_sample._processed = True

    run.optimizer.clip_and_accumulate = clip_less
    audit = attach(run, model=run.model)
    found = audit.probe(step_of(run))
    audit.detach()
    assert fault_parts(found.faults[0])[3] == "'2.weight' is not clipped"
