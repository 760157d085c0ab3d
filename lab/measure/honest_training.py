"""Is honest training ever accused? Real Opacus runs, and mechanisms on the boundary.

    python lab/measure/honest_training.py --store honest.sqlite     # run or resume
    python lab/measure/honest_training.py --store honest.sqlite --only boundary
    python lab/measure/honest_training.py --store honest.sqlite --only roads tied

``honest``: audited runs whose noise, clip, sampling and accounting are Opacus' own, in
turn with canaries as records (hooks, functorch, ew) and in sums (hooks, ghost), with
little and much noise; how often is the accountant's claim refuted at p < 0.001, and at
0.05? It holds with room to spare, so hardly ever.

``boundary``: the same pipeline on real Opacus runs that are wrapped so that the claim
holds with equality, where a test at level alpha may be wrong with chance alpha and no
more. ``all or nothing``: with chance delta the run shows its sums without noise, else
noise alone. ``revealed or randomised``: with chance delta the sums without noise,
else each coordinate shows whether a canary is there by randomised response with the
claim's epsilon. A rate fails when its lower 99.9 % limit (Bonferroni over the rows)
exceeds alpha.

``roads``: the default audit with probes, as the guide to Opacus has it (probed before
the first step and, with fewer records, half-way), in honest trainings of many kinds:
how each run ended, what the ledger says was looked at, the largest change of the sum
by one record. Data are 1,000 records of real sets, drawn anew for each run (``data``);
words are the pixels of digits. Clipping norm, noise and optimizer vary with the run.
On two ranks nothing is probed. Needs peft for LoRA.

``tied``: the same audit of GPT-2 and Llama whose head is their embedding, under ghost
clipping. With a head of transformers' own Opacus refuses, with a head by the function
``linear`` it clips by norms without it; nothing is patched.
"""

import argparse
import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, final

import data
import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from ranks import on_ranks
from sweeping import filled
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, Key, OneRun
from dpaudit.game.ledger import How
from dpaudit.stats.binomial import rate_limits
from dpaudit.testing import fixed_key
from dpaudit.training.opacus import OpacusAudit, plan_opacus, with_canaries
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

HONEST: list[Setting] = [
    {"mode": mode, "records": records, "noise": noise}
    for mode, records in (
        ("hooks", True),
        ("functorch", True),
        ("ew", True),
        ("hooks", False),
        ("ghost", False),
    )
    for noise in (0.7, 2.0)
]
# Guesses such that randomised response alone is refuted with chance 0.0495, next to
# alpha; by the exact bound at 100 canaries.
BOUNDARY: list[Setting] = [
    {"kind": kind, "epsilon": epsilon, "delta": 1e-4, "guesses": guesses}
    for kind in ("revealed or randomised", "all or nothing")
    for epsilon, guesses in ((0.5, 99), (2.0, 38))
]
ALPHA = 0.05


def make_private(
    *,
    mode: str,
    noise: float,
    clip: float,
    canaries: int,
    rate: float,
    hidden: int,
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model,
) -> tuple[Any, ...]:
    """Return model, optimizer, criterion, loader and engine of a small training."""
    pixels, labels = torch.randn(200, 30), torch.randint(4, (200,))
    data = TensorDataset(pixels, labels)
    if canaries:
        data = with_canaries(data, canaries=canaries)
    layers = nn.Linear(30, hidden), nn.ReLU(), nn.Linear(hidden, 4)
    model = wrap(nn.Sequential(*layers))
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=int(len(data) * rate)),
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=noise,
        max_grad_norm=clip,
        grad_sample_mode=mode,
    )
    if "ghost" in mode:
        model, optimizer, criterion, loader = made
    else:
        (model, optimizer, loader), criterion = made, nn.CrossEntropyLoss()
    return model, optimizer, criterion, loader, engine


def train(
    model: nn.Module,
    optimizer: DPOptimizer,
    criterion: nn.Module,
    loader: DataLoader,
    steps: int,
) -> None:
    taken = 0
    while taken < steps:
        for pixels, labels in loader:
            optimizer.zero_grad()
            criterion(model(pixels), labels).backward()
            optimizer.step()
            taken += 1
            if taken == steps:
                return


def begin(rng: np.random.Generator) -> Key:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(int(rng.integers(2**63)))
    return fixed_key(rng.bytes(32))


def honest_run(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train honestly with 1,000 canaries and return the accountant's p-value."""
    key = begin(rng)
    n = 1000
    model, optimizer, criterion, loader, engine = make_private(
        mode=str(setting["mode"]),
        noise=float(setting["noise"]),
        clip=float(rng.choice([0.5, 1.0, 4.0])),
        canaries=n if setting["records"] else 0,
        rate=0.1,
        hidden=60,
    )
    design = Design(
        canaries=n,
        rules=OneRun(guesses=int(rng.choice([50, 200, 1000]))),
        claim=ApproxDP(epsilon=8.0, delta=1e-5),
    )
    audit = OpacusAudit(
        optimizer, loader, design=design, key=key, accountant=engine.accountant
    )
    train(model, optimizer, criterion, audit.data_loader, 30)
    return {"p_value": audit.finish().p_value}


def boundary_run(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Audit one step of a run that keeps its claim with equality."""
    key = begin(rng)
    epsilon, delta = float(setting["epsilon"]), float(setting["delta"])
    model, optimizer, criterion, loader, _ = make_private(
        mode="hooks", noise=1.0, clip=1.0, canaries=0, rate=1.0, hidden=6
    )
    wrapped(optimizer, str(setting["kind"]), epsilon, delta, rng)
    design = Design(
        canaries=100,
        rules=OneRun(guesses=int(setting["guesses"])),
        claim=ApproxDP(epsilon=epsilon, delta=delta),
        alpha=ALPHA,
    )
    audit = OpacusAudit(optimizer, loader, design=design, key=key)
    train(model, optimizer, criterion, loader, 1)
    return {"p_value": audit.finish().p_value}


def wrapped(
    optimizer: DPOptimizer,
    kind: str,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> None:
    """Let the run show its sums with chance delta, and otherwise little or nothing."""
    everything = rng.random() < delta
    lie = 1 / (1 + math.exp(epsilon))

    def add_noise() -> None:
        for parameter in optimizer.params:
            # One step without real gradients: what is there is canaries.
            there = parameter.summed_grad.abs() > 0.5 * optimizer.max_grad_norm
            if not everything:
                shape = tuple(there.shape)
                if kind == "all or nothing":
                    there = torch.from_numpy(rng.random(shape) < 0.5)
                else:
                    there ^= torch.from_numpy(rng.random(shape) < lie)
            parameter.grad = there.float().view_as(parameter)

    def clip_nothing() -> None:
        for parameter in optimizer.params:
            parameter.summed_grad = torch.zeros_like(parameter)

    optimizer.add_noise = add_noise
    optimizer.clip_and_accumulate = clip_nothing


# The roads: honest trainings of many kinds, with the default audit.

CANARIES, RECORDS, STEPS, RATE = 500, 1000, 40, 0.1
COLOURS, LENGTH = 17, 16  # of pixels that are words
Batch = tuple[torch.Tensor, ...]
dp_ddp = DifferentiallyPrivateDistributedDataParallel


@final
class NextWord(nn.CrossEntropyLoss):
    """The loss of each text: the mean over its words."""

    def forward(self, scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return the mean over texts, or each text's own."""
        each = functional.cross_entropy(
            scores[:, :-1].mT, words[:, 1:], reduction="none"
        ).mean(dim=1)
        return each if self.reduction == "none" else each.mean()


def mlp(*more: nn.Module, inputs: int = 64) -> nn.Module:
    first, last = nn.Linear(inputs, 48), nn.Linear(48, 10)
    return nn.Sequential(first, nn.ReLU(), *more, last)


def convolution() -> nn.Module:
    normed = nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU()
    return nn.Sequential(*normed, nn.Flatten(), nn.Linear(512, 10))


@final
class Reader(nn.Module):
    """Words, their mean, classes."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(COLOURS, 16), nn.LayerNorm(16)
        self.head = mlp(nn.Dropout(0.1), inputs=16)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        mean = self.norm(self.words(words)).mean(dim=1)
        scores: torch.Tensor = self.head(mean)
        return scores


@final
class Twice(nn.Module):
    """One layer, used twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(64, 32), nn.Linear(32, 32)
        self.last = nn.Linear(32, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        inside = torch.relu(self.middle(torch.relu(self.first(pixels))))
        scores: torch.Tensor = self.last(torch.relu(self.middle(inside)))
        return scores


@final
class Tied(nn.Module):
    """Words in, words out, one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.middle = nn.Embedding(COLOURS, 24), nn.Linear(24, 24)
        self.head = nn.Linear(24, COLOURS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next word, at each place."""
        scores: torch.Tensor = self.head(torch.tanh(self.middle(self.words(words))))
        return scores


def configured(kind: str, **more: Any) -> Any:  # noqa: ANN401 (of an optional library)
    """Return a configuration of a small GPT-2 or Llama."""
    import transformers  # noqa: PLC0415 (a second to import)

    if kind == "GPT-2":
        sizes = {"n_positions": LENGTH, "n_embd": 32, "n_layer": 1, "n_head": 2}
        ends = {"bos_token_id": 0, "eos_token_id": 0}
        return transformers.GPT2Config(vocab_size=COLOURS, **sizes, **ends, **more)
    return transformers.LlamaConfig(
        vocab_size=COLOURS,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
        **more,
    )


@final
class Language(nn.Module):
    """A model of transformers, of which only the scores are wanted.

    Args:
        kind: GPT-2 or Llama.
        tied: Whether its head is its embedding.
        lora: Whether only adapters of low rank are trained.
        by_function: Whether the head is the function ``linear``, and no module.
    """

    def __init__(
        self,
        kind: str,
        *,
        tied: bool = False,
        lora: bool = False,
        by_function: bool = False,
    ) -> None:
        super().__init__()
        import transformers  # noqa: PLC0415 (a second to import)

        config = configured(kind, tie_word_embeddings=tied)
        made = transformers.AutoModelForCausalLM
        if by_function:
            made = transformers.AutoModel
        self.net, self.by_function = made.from_config(config), by_function
        if lora:
            import peft  # noqa: PLC0415 (not among our extras)

            gpt = kind == "GPT-2"
            chosen = peft.LoraConfig(
                r=8,
                lora_dropout=0.1,
                target_modules=["c_attn"] if gpt else ["q_proj", "v_proj"],
                fan_in_fan_out=gpt,
            )
            self.net = peft.get_peft_model(self.net, chosen)
        self.train()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next word, at each place."""
        places = torch.arange(words.shape[1]).repeat(len(words), 1)
        found = self.net(input_ids=words, position_ids=places)
        if self.by_function:
            matrix = self.net.get_input_embeddings().weight
            return functional.linear(found.last_hidden_state, matrix)
        scores: torch.Tensor = found.logits
        return scores


def digits() -> Batch:
    return data.digits()[:2]


def pictures() -> Batch:
    pixels, labels = digits()
    return pixels.view(-1, 1, 8, 8), labels


def words() -> Batch:
    pixels, labels = digits()
    return (16 * pixels).round().long(), labels


def texts() -> Batch:
    """Return two rows of pixels of each picture."""
    return (words()[0][:, 24 : 24 + LENGTH].contiguous(),) * 2


@cache
def loaded(load: Callable[[], Batch]) -> Batch:
    return load()[:2]


def as_it_is(batch: Batch) -> Batch:
    return batch


def augmented(batch: Batch) -> Batch:
    """Flip half of the pictures, and change the brightness of each."""
    pixels, labels = batch
    flip = torch.rand(len(pixels), 1, 1, 1) < 0.5
    bright = 0.5 + torch.rand(len(pixels), 1, 1, 1)
    return torch.where(flip, pixels.flip(-1), pixels) * bright, labels


def halved(batch: Batch) -> Batch:
    pixels, labels = batch
    return pixels.bfloat16(), labels


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A training by Opacus.

    Attributes:
        load: Its records.
        network: What is trained.
        mode: Opacus' ``grad_sample_mode``.
        records: Whether canaries are records; else they are added to sums.
        physical: Most records of a physical batch; 0 if batches are not divided.
        before: What is done to a batch before the model.
        autocast: Whether the forward pass is in bfloat16 where torch finds it safe.
        wrap: Around the network, on two ranks.
        criterion: The loss.
        half: Whether numbers have eight bits, anywhere.
        slow: Whether it is to be run a quarter as often.
    """

    load: Callable[[], Batch]
    network: Callable[[], nn.Module]
    mode: str = "hooks"
    records: bool = False
    physical: int = 0
    before: Callable[[Batch], Batch] = as_it_is
    autocast: bool = False
    wrap: Callable[[nn.Module], nn.Module] | None = None
    criterion: Callable[[], nn.Module] = nn.CrossEntropyLoss
    half: bool = False
    slow: bool = False


dropped = lambda: mlp(nn.Dropout(0.3))  # noqa: E731
normed = lambda: mlp(nn.LayerNorm(48), nn.Dropout(0.1))  # noqa: E731
adult = partial(mlp, inputs=108)
Digits = partial(Kind, load=digits, network=mlp)
Pictures = partial(Kind, load=pictures, network=convolution, before=augmented)
Adult = partial(Kind, load=data.adult, network=adult)
Mnist = partial(Kind, load=data.mnist, network=data.mnist_network)
Text = partial(Kind, load=texts, criterion=NextWord)
halves = lambda: mlp().bfloat16()  # noqa: E731

KINDS: dict[str, Kind] = {
    "digits, hooks, records": Digits(records=True),
    "digits, functorch, records": Digits(mode="functorch", records=True),
    "digits, ew, records": Digits(mode="ew", records=True),
    "digits, hooks, sums": Digits(),
    "digits, ghost, sums": Digits(mode="ghost"),
    "digits, dropout, hooks, records": Digits(network=dropped, records=True),
    "digits, dropout, functorch, sums": Digits(network=dropped, mode="functorch"),
    "digits, dropout, ghost, sums": Digits(network=dropped, mode="ghost"),
    "digits, LayerNorm and dropout, ew, records": Digits(
        network=normed, mode="ew", records=True
    ),
    "digits, micro-batches, hooks, records": Digits(records=True, physical=32),
    "digits, micro-batches, ghost, sums": Digits(mode="ghost", physical=32),
    "digits, a layer used twice, hooks, records": Digits(network=Twice, records=True),
    "digits, bfloat16, hooks, sums": Digits(network=halves, before=halved, half=True),
    "digits, bfloat16, ghost, sums": Digits(
        network=halves, before=halved, half=True, mode="ghost"
    ),
    "digits, autocast to bfloat16, hooks, records": Digits(
        autocast=True, half=True, records=True
    ),
    "digits, autocast to bfloat16, ghost, sums": Digits(
        autocast=True, half=True, mode="ghost"
    ),
    "digits, GroupNorm, augmented, hooks, records": Pictures(records=True),
    "digits, GroupNorm, augmented, ew, sums": Pictures(mode="ew"),
    "digits, GroupNorm, augmented, ghost, sums": Pictures(mode="ghost"),
    "digits as words, embedding and LayerNorm, hooks, records": Kind(
        load=words, network=Reader, records=True
    ),
    "digits as words, embedding and LayerNorm, ghost, sums": Kind(
        load=words, network=Reader, mode="ghost"
    ),
    "digits as texts, tied head, hooks, records": Text(network=Tied, records=True),
    "Adult, hooks, records": Adult(records=True),
    "Adult, micro-batches, functorch, records": Adult(
        mode="functorch", records=True, physical=40
    ),
    "Adult, ew, sums": Adult(mode="ew"),
    "Adult, ghost, sums": Adult(mode="ghost"),
    "MNIST, hooks, records": Mnist(records=True),
    "MNIST, micro-batches, ghost, sums": Mnist(mode="ghost", physical=32),
    "digits as texts, GPT-2 with LoRA, hooks, records": Text(
        network=partial(Language, "GPT-2", lora=True), slow=True, records=True
    ),
    "digits as texts, GPT-2 with LoRA, ghost, sums": Text(
        network=partial(Language, "GPT-2", lora=True), slow=True, mode="ghost"
    ),
    "digits as texts, Llama with LoRA, functorch, sums": Text(
        network=partial(Language, "Llama", lora=True), slow=True, mode="functorch"
    ),
    "digits as texts, Llama with LoRA, ghost, micro-batches, sums": Text(
        network=partial(Language, "Llama", lora=True),
        slow=True,
        mode="ghost",
        physical=32,
    ),
    "digits as texts, all of Llama, tied head, hooks, sums": Text(
        network=partial(Language, "Llama", tied=True), slow=True
    ),
    "digits, Opacus' DDP, hooks, records": Digits(wrap=dp_ddp, records=True, slow=True),
    "digits, Opacus' DDP, dropout, hooks, sums": Digits(
        wrap=dp_ddp, network=dropped, slow=True
    ),
    "digits, Opacus' DDP, ghost, sums": Digits(wrap=dp_ddp, mode="ghost", slow=True),
    "digits, torch's DDP, hooks, sums": Digits(wrap=DistributedDataParallel, slow=True),
}
TIED: dict[str, Kind] = {
    f"{kind}, head by linear, {mode}": Text(
        network=partial(Language, kind, tied=True, by_function=True), mode=mode
    )
    for kind in ("GPT-2", "Llama")
    for mode in ("ghost",)
}


@cache
def planned(noise: float) -> tuple[int, float]:
    """Return guesses and epsilon of the default plan; the same for all kinds."""
    _, optimizer, _, loader, _ = make_private(
        mode="hooks", noise=noise, clip=1.0, canaries=0, rate=RATE, hidden=60
    )
    plan = plan_opacus(optimizer, loader, steps=STEPS, delta=1e-5, coordinates=CANARIES)
    design = plan.design()
    assert isinstance(design.rules, OneRun)
    assert isinstance(design.claim, ApproxDP)
    return design.rules.guesses, design.claim.epsilon


def roads_run(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Audit an honest training by default, with probes, and say how it ended."""
    key, noise = begin(rng), float(rng.choice([1.0, 2.0]))
    given = {
        "name": setting["training"],
        "noise": noise,
        "clip": float(rng.choice([0.5, 1.0, 4.0])),
        "planned": planned(noise),
        "secret": key.secret.hex(),
    }
    alone = (KINDS | TIED)[str(setting["training"])].wrap is None
    run = audited if alone else partial(on_ranks, audited)
    return run(json.dumps(given), int(rng.integers(2**31)))


def audited(given: str, seed: int) -> Any:  # noqa: ANN401 (plain values)
    """Train once, in this process or on each rank; all that is given is JSON."""
    warnings.simplefilter("ignore")
    plain = json.loads(given)
    kind = (KINDS | TIED)[plain["name"]]
    noise, clip, (guesses, epsilon) = (plain[k] for k in ("noise", "clip", "planned"))
    torch.manual_seed(seed)
    run = private(kind, noise, clip, adam=bool(seed % 2))
    torch.manual_seed(seed + 1 + (distributed.get_rank() if kind.wrap else 0))
    model, optimizer, criterion, loader, engine = run
    claim = ApproxDP(epsilon=epsilon, delta=1e-5)
    audit = OpacusAudit(
        optimizer,
        loader,
        design=Design(canaries=CANARIES, rules=OneRun(guesses=guesses), claim=claim),
        key=fixed_key(bytes.fromhex(plain["secret"])),
        accountant=engine.accountant,
        model=model,
    )

    def step(batch: Batch) -> None:
        inputs, labels = kind.before(batch)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind.autocast):
            scores = model(inputs)
        criterion(scores.float(), labels).backward()
        optimizer.step()

    probes = [] if kind.wrap else [audit.probe(step)]
    manager = (
        BatchMemoryManager(
            data_loader=audit.data_loader,
            max_physical_batch_size=kind.physical,
            optimizer=optimizer,
        )
        if kind.physical
        else nullcontext(audit.data_loader)
    )
    with manager as batches:
        for taken in logical_steps(optimizer, batches, step):
            if probes and taken == STEPS // 2:
                probes.append(audit.probe(step, records=3, seed=1))
    found = audit.finish()
    assert found.training is not None
    ledger = found.training.ledger
    return {
        "verdict": str(found.verdict),
        "p_value": found.p_value,
        "faults": "; ".join(f"{each.road}: {each}" for each in found.faults),
        "change": max((each.change for each in probes), default=None),
        "coupling": max((each.coupling or 0.0 for each in probes), default=None),
        "tolerance": max((each.tolerance for each in probes), default=None),
        "unseen": "; ".join(each.unseen for each in probes if each.unseen),
        "clipped": min((each.clipped for each in probes), default=None),
        **{str(how): ", ".join(ledger.roads(how)) for how in How},
    }


def private(kind: Kind, noise: float, clip: float, *, adam: bool) -> tuple[Any, ...]:
    """Return model, optimizer, criterion, loader and engine of a training."""
    inputs, labels = loaded(kind.load)
    some = torch.randperm(len(inputs))[:RECORDS]
    records: Any = TensorDataset(inputs[some], labels[some])
    if kind.records:
        records = with_canaries(records, canaries=CANARIES)
    model = (kind.wrap or nn.Identity().forward)(kind.network())
    trained = [each for each in model.parameters() if each.requires_grad]
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.Adam(trained) if adam else torch.optim.SGD(trained, 0.1),
        data_loader=DataLoader(records, batch_size=int(len(records) * RATE)),
        criterion=kind.criterion(),
        noise_multiplier=noise,
        max_grad_norm=clip,
        grad_sample_mode=kind.mode,
    )
    model, optimizer, *criteria, loader = made
    criterion = criteria[0] if criteria else kind.criterion()
    return model, optimizer, criterion, loader, engine


def logical_steps(
    optimizer: DPOptimizer, batches: Iterable[Batch], step: Callable[[Batch], None]
) -> Iterator[int]:
    """Train, and yield how many steps are made."""
    taken = 0
    for batch in chain.from_iterable(repeat(batches)):
        step(batch)
        if not optimizer._is_last_step_skipped:
            taken += 1
            yield taken
            if taken == STEPS:
                return


def sweeps(trials: dict[str, int]) -> dict[str, list[Sweep]]:
    """Return the sweeps of each part; those of one part do not overlap."""
    fast, slow = (
        by_name(name for name, kind in KINDS.items() if kind.slow is often)
        for often in (False, True)
    )
    roads = trials["roads"]
    return {
        "honest": [swept("honest_training", honest_run, HONEST, trials["honest"], 2)],
        "boundary": [
            swept("boundary_training", boundary_run, BOUNDARY, trials["boundary"], 2)
        ],
        "roads": [
            swept("honest roads", roads_run, fast, roads, 1),
            swept("honest roads", roads_run, slow, -(-roads // 4), 1),
        ],
        "tied": [swept("tied heads", roads_run, by_name(TIED), trials["tied"], 1)],
    }


def swept(
    name: str,
    function: Callable[..., Outcome],
    settings: list[Setting],
    trials: int,
    revision: int,
) -> Sweep:
    return Sweep(
        name=name,
        revision=revision,
        function=function,
        settings=settings,
        trials=trials,
    )


def by_name(kinds: Iterable[str]) -> list[Setting]:
    return [{"training": name} for name in kinds]


def report_levels(name: str, sweep: Sweep, store: Store) -> None:
    level = 0.001 if name == "honest" else ALPHA
    total = wrong = 0
    for setting in sweep.settings:
        found = [o["p_value"] for o in store.outcomes(sweep.cell(setting))]
        refuted = sum(p <= level for p in found)
        total, wrong = total + len(found), wrong + refuted
        low, high = rate_limits(refuted, len(found), alpha=0.002 / len(sweep.settings))
        verdict = "FAILS" if low > level else "holds"
        print(
            f"{name} {setting}: refuted at p <= {level:g} in {refuted} of {len(found)}"
            f" ({refuted / len(found):.4f} [{low:.4f}, {high:.4f}]), least p "
            f"{min(found):.3g}: {verdict}"
        )
    print(f"{name}: {wrong} of {total} refuted")


def report_roads(found: dict[str, list[Outcome]]) -> bool:
    """Print what came of each kind and of all; return whether none was accused."""
    print("| training | ended | least p | change / C (tolerance) | not looked at |")
    print("|---|---|---|---|---|")
    for name, runs in found.items():
        ended = Counter(str(each["verdict"]) for each in runs).most_common()
        print(
            f"| {name} | {', '.join(f'{verdict} {n}' for verdict, n in ended)} "
            f"| {min(each['p_value'] for each in runs):.2g} | {largest(runs)} "
            f"| {', '.join({str(each[How.NOT_LOOKED_AT]) for each in runs})} |"
        )
    every = [each for runs in found.values() for each in runs]
    for what, wrong in (
        ("fault found", [each for each in every if each["faults"]]),
        ("refuted at p < 0.001", [each for each in every if each["p_value"] < 0.001]),
        ("refuted at p < 0.05", [each for each in every if each["p_value"] < 0.05]),
        ("step not examined", [each for each in every if each["unseen"]]),
    ):
        low, high = rate_limits(len(wrong), len(every), alpha=0.05)
        print(f"{what}: {len(wrong)} of {len(every)} [{low:.4f}, {high:.4f}]")
    for half in (False, True):
        kept = [
            each for name in found for each in found[name] if KINDS[name].half is half
        ]
        print(f"change in {'bfloat16' if half else 'float32'}: {largest(kept)}")
    for fault in dict.fromkeys(str(each["faults"]) for each in every if each["faults"]):
        print(fault)
    return not any(each["faults"] or each["p_value"] < 0.001 for each in every)


def largest(runs: list[Outcome]) -> str:
    """Return the largest change of a sum by one record, with what rounding allows."""
    seen = [each for each in runs if each["change"] is not None]
    if not seen:
        return "not probed"
    change, tolerance = (max(e[what] for e in seen) for what in ("change", "tolerance"))
    return f"{change:.7f} ({tolerance:.2g})"


def report_tied(found: dict[str, list[Outcome]]) -> bool:
    """Print how often each was caught, and by what; return whether almost always."""
    for kind in ("GPT-2", "Llama"):
        refused = Text(network=partial(Language, kind, tied=True), mode="ghost")
        model, _, criterion, loader, _ = private(refused, 1.0, 1.0, adam=False)
        try:
            inputs, labels = next(iter(loader))
            criterion(model(inputs), labels).backward()
            print(f"{kind}, head of transformers, ghost: taken")
        except NotImplementedError as error:
            print(f"{kind}, head of transformers, ghost: Opacus refuses ({error})")
    for name, runs in found.items():
        caught = [each for each in runs if each["faults"]]
        changes = [each["change"] for each in runs]
        print(
            f"{name}: fault found in {len(caught)} of {len(runs)}; a record changes "
            f"the sum by {min(changes):.3g} to {max(changes):.3g} C"
        )
        for fault, n in Counter(str(each["faults"]) for each in caught).most_common(3):
            print(f"    {n}: {fault}")
    return all(
        sum(bool(each["faults"]) for each in runs) >= 0.95 * len(runs)
        for runs in found.values()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("honest.sqlite"))
    runs = {"honest": 30, "boundary": 5000, "roads": 10, "tied": 20}
    for name, number in runs.items():
        parser.add_argument(f"--{name}", type=int, default=number, metavar="RUNS")
    parser.add_argument("--only", nargs="+", choices=list(runs), default=list(runs))
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    good = True
    for part, planned_sweeps in sweeps(vars(arguments)).items():
        if part not in arguments.only:
            continue
        found: dict[str, list[Outcome]] = {}
        for sweep in planned_sweeps:
            with filled(
                sweep, arguments.store, workers=arguments.workers, doing=part
            ) as store:
                if part in ("honest", "boundary"):
                    report_levels(part, sweep, store)
                    continue
                found |= {
                    str(setting["training"]): [*store.outcomes(sweep.cell(setting))]
                    for setting in sweep.settings
                }
        if part == "roads":
            good &= report_roads(found)
        if part == "tied":
            good &= report_tied(found)
    sys.exit(not good)


if __name__ == "__main__":
    import honest_training  # so that workers and ranks find its functions

    honest_training.main()
