"""Make four reports, look at them in a browser, and check that anyone can read them.

    pip install '.[report,accounting,opacus]'
    python lab/measure/report_pages.py pages
    npm install axe-core puppeteer-core
    python lab/measure/report_pages.py pages --node-modules node_modules --check

    .ci/docs site && python lab/measure/report_pages.py pages --site site ...

The pages: a correct run of Opacus, a claim that scores refute, an audit in rounds, and
an audit too small to tell. ``--node-modules`` opens each page in the Chromium on the
path, refuses and counts whatever it requests besides itself, lets axe-core search for
barriers in every look (light, dark, a telephone's width, print), and puts pictures of
all looks beside the page; ``--pictures`` keeps the light ones, 1,100 pixels wide, and
the first screen of the first. ``--check`` fails if there is a serious barrier, a
request, or a page of a megabyte. ``--site`` opens some pages of the documentation as
well.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from opacus import PrivacyEngine
from PIL import Image  # matplotlib's own need
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import (
    ApproxDP,
    Coins,
    Design,
    MostLikely,
    OneRun,
    PureDP,
    Ranking,
    audit_opacus,
    audit_scores,
)
from dpaudit.accounting import accountant_curve, noise_for
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.explanation import explain
from dpaudit.game.auditors import play_one_run
from dpaudit.game.design import Commitment
from dpaudit.game.result import Result, conclude
from dpaudit.game.setting import Setting
from dpaudit.mechanisms.local import LocalLaplace
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.reporting.report import report
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

DELTA, DIMENSION, CLIP = 1e-5, 2_000, 1.0
MOST_BYTES = 1_000_000
TOP = 680  # pixels: the first screen


def trained(design: Design, training: TrainingSetup, *, seed: int) -> Result:
    """Train in plain numpy, with a little of real gradients, and audit it."""
    rng = np.random.default_rng(seed)
    audit = SumsAudit(
        design=design,
        key=fixed_key(rng.bytes(32)),
        dimension=DIMENSION,
        sample_rate=training.rate,
        knows_real_sums=True,
    )
    for _ in range(training.steps):
        real = 0.05 * CLIP * rng.normal(size=DIMENSION)
        total = real.copy()
        total[audit.coordinates] += CLIP * audit.contributions()
        noisy = total + CLIP * training.noise * rng.normal(size=DIMENSION)
        audit.observe(
            noisy[audit.coordinates] / CLIP, real_sums=real[audit.coordinates] / CLIP
        )
    if not isinstance(design.rules, OneRun):
        return audit.finish()
    steps = [(training.noise, training.rate, training.steps)]
    return audit.finish(claim=accountant_curve(steps))


def planned(*, in_rounds: bool, seed: int) -> Result:
    """Plan an audit of honest training, and make it."""
    noise = noise_for(2.0, DELTA, sample_rate=0.1, steps=100, method="rdp")
    training = TrainingSetup(steps=100, rate=0.1, noise=noise)
    plan = plan_audit(
        training,
        claim=ApproxDP(epsilon=2.0, delta=DELTA),
        coordinates=1_000,
        guarantee=accountant_curve([(noise, 0.1, 100)]),
        in_rounds=in_rounds,
    )
    return trained(plan.design(), training, seed=seed)


def refuted() -> Result:
    """Audit scores of a mechanism whose noise is half of what its claim needs."""
    rng = np.random.default_rng(3)
    n, claim = 2_000, ApproxDP(epsilon=1.0, delta=DELTA)
    coins = Coins(key=fixed_key(rng.bytes(32)), count=n)
    scores = coins.bits() + rng.laplace(scale=0.5, size=n)
    design = Design(
        canaries=n,
        rules=Ranking(guesses=n),
        claim=claim,
        setting=Setting(
            notes={"mechanism": "sum of one bit", "noise": "Laplace, scale 0.5"}
        ),
    )
    return audit_scores(np.arange(n), coins, scores, design=design)


def too_small(page: Path) -> None:
    """Audit an honest mechanism with far too few canaries, and explain it in full."""
    rng = np.random.default_rng(5)
    mechanism = LocalLaplace(epsilon=2.5)
    claim = PureDP(epsilon=2.5, adjacency=Adjacency.REPLACE_ONE)
    design = Design(canaries=40, rules=OneRun(guesses=20), claim=claim)
    key = fixed_key(rng.bytes(32))
    transcript = play_one_run(
        mechanism,
        MostLikely(mechanism=mechanism, guesses=20),
        pairs=mechanism.pairs,
        design=design,
        rng=rng,
        key=key,
    )
    result = conclude(transcript, commitment=Commitment.to(key, design))
    explanation = explain(result, mechanism=mechanism)
    report(result, page, transcript=transcript, explanation=explanation)


def correct() -> Result:
    """Audit a correct run of Opacus, as the README does."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2000, 20), torch.randint(2, (2000,)))
    network = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 2))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=100),
        target_epsilon=4.0,
        target_delta=DELTA,
        epochs=5,
        max_grad_norm=CLIP,
    )

    def step(batch: list[torch.Tensor]) -> None:
        inputs, labels = batch
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    audit = audit_opacus(
        engine, model, optimizer, loader, epochs=5, delta=DELTA, step=step
    )
    for _ in range(5):
        for batch in loader:
            step(batch)
    return audit.finish()


PAGES = {
    "honest": lambda page: report(
        correct(), page, title="example model", auditor="Example Audits"
    ),
    "refuted": lambda page: report(refuted(), page),
    "adaptive": lambda page: report(planned(in_rounds=True, seed=2), page),
    "inconclusive": too_small,
}


SITE = ("index", "tutorials/first-audit", "tutorials/opacus", "how-to/read-a-report")


def looked_at(
    pages: list[Path], node_modules: Path, pictures: Path, site: Path | None = None
) -> dict[str, dict]:
    """Open every page in Chromium, and return what was found in each.

    Args:
        pages: The pages.
        node_modules: With axe-core in it.
        pictures: Where pictures go.
        site: Where files lie that the pages may ask for; none if it is left out.
    """
    script = Path(__file__).with_name("axe.mjs")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("there is no chromium on the path; on Debian: apt install chromium")
    command = ["node", str(script), str(node_modules.resolve()), chromium]
    command += [str(pictures.resolve()), str(site.resolve()) if site else ""]
    command += [str(page.resolve()) for page in pages]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def kept(picture: Path, folder: Path) -> None:
    """Keep a picture in its 128 commonest colours, as documentation is copied often."""
    with Image.open(picture) as taken:
        pixels = np.asarray(taken.convert("RGB"), np.int64)
    colours, which, times = np.unique(
        pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    palette = colours[np.argsort(-times)[:128]]
    distances = np.square(colours[:, None] - palette).sum(axis=2)
    nearest = distances.argmin(axis=1)[which].astype(np.uint8)
    few = Image.fromarray(nearest.reshape(pixels.shape[:2])).convert("P")
    few.putpalette(palette.astype(np.uint8).tobytes())
    few.save(folder / picture.name, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the pages go")
    parser.add_argument("--node-modules", type=Path, help="with axe-core in it")
    parser.add_argument("--pictures", type=Path, help="where the light pictures go")
    parser.add_argument("--site", type=Path, help="the documentation, built")
    parser.add_argument("--check", action="store_true", help="fail if one is unfit")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    pages, unfit = [], []
    for name, written in PAGES.items():
        page = asked.folder / f"report-{name}.html"
        written(page)
        pages.append(page)
        size = page.stat().st_size
        print(f"{page.name}: {size:,} bytes")
        if size >= MOST_BYTES:
            unfit.append(f"{page.name} has {size:,} bytes")
    if asked.node_modules:
        seen = looked_at(pages, asked.node_modules, asked.folder)
        if asked.site:
            parts = [asked.site / f"{each}.html" for each in SITE]
            seen |= looked_at(parts, asked.node_modules, asked.folder, asked.site)
        for name, found in seen.items():
            print(f"{name}: {found['requests']} requests, axe-core: {found['axe']}")
            for each in found["findings"]:
                print(f"  {each['look']}: {each['rule']} ({each['impact']})")
            if found["requests"] or found["barriers"]:
                unfit.append(f"{name}: {found}")
    if asked.pictures and asked.node_modules:
        asked.pictures.mkdir(parents=True, exist_ok=True)
        for page in pages:
            kept(page.with_suffix(".png"), asked.pictures)
        top = asked.folder / "report-top.png"
        with Image.open(pages[0].with_suffix(".png")) as whole:
            whole.crop((0, 0, whole.width, TOP)).save(top)
        kept(top, asked.pictures)
    if asked.check and unfit:
        sys.exit("\n".join(unfit))


if __name__ == "__main__":
    main()
