"""The zoo: bugs of DP-SGD, by name; first those that have an audit made for them.

Unless a bug needs another setting, the training claims epsilon = 2 at delta = 1e-5: a
hundred steps, a sample rate of a tenth, noise multiplier 2.25. Numbers of canaries and
guesses were chosen on other seeds than those the bugs are tried with.
"""

from collections.abc import Mapping
from math import sqrt
from types import MappingProxyType
from typing import Final

from dpaudit.game.findings import Stage
from dpaudit.training.opacus import Canary
from dpaudit_lab.bugzoo.accounting import (
    account_for_more_records,
    lose_accountant_on_resume,
)
from dpaudit_lab.bugzoo.bug import (
    Bug,
    Examples,
    PairedHalves,
    Ranks,
    Records,
    Sums,
)
from dpaudit_lab.bugzoo.clipping import (
    account_per_layer_as_flat,
    clip_accumulated_sum,
    clip_before_unscaling,
    clip_half_precision,
    clip_whole_batch,
)
from dpaudit_lab.bugzoo.distributed import (
    add_noise_after_reduce,
    same_noise_in_every_shard,
)
from dpaudit_lab.bugzoo.ghost import forget_embedding_norm, token_run
from dpaudit_lab.bugzoo.honest import Setting
from dpaudit_lab.bugzoo.newcomers import NEWCOMERS
from dpaudit_lab.bugzoo.noise import (
    divide_noise_twice,
    forget_clip_in_noise,
    leave_last_layer_without_noise,
    repeat_noise,
    take_variance_for_deviation,
)
from dpaudit_lab.bugzoo.sampling import (
    augment_each_record,
    divide_by_realised_size,
    shuffle,
)
from dpaudit_lab.bugzoo.truth import (
    AtLeast,
    Effective,
    History,
    Infinite,
    few_records,
    nearly_noiseless,
)

__all__ = ["BUGS"]

_BASE: Final = Setting()
_SHORT: Final = Setting(clip=0.05, steps=40)
_WIDE: Final = Setting(widths=(50, 400))  # room for 20,000 canaries
_LESS_NOISE: Final = Setting(noise=1.5, records=100)
_TWO_RANKS: Final = Setting(widths=(50, 90))
_DIRAC: Final = Records(canary=Canary())
_LOUD: Final = Records(canary=Canary(norm=10.0))
_BATCH: Final = 250  # expected, of 500 real records and 2000 canaries
_KIND: Final = "A known kind of bug; no public report is cited."


def _with_noise(noise: float) -> History:
    return ((noise, _BASE.rate, _BASE.steps),)


_AUDITED: Final = (
    Bug(
        name="noise-without-clip",
        title="noise of standard deviation sigma instead of sigma C (C = 4)",
        story="The noise is scaled by the multiplier alone. With C = 1, as in most "
        "tests, nothing is wrong; above, noise is C times too small. The clipping norm "
        "going astray on its way through a library was seen in "
        "https://github.com/meta-pytorch/opacus/pull/664.",
        setting=Setting(clip=4.0),
        plant=forget_clip_in_noise,
        truth=Effective(
            claimed=_BASE.history,
            spent=_with_noise(_BASE.noise / 4),
            how="sensitivity C = 4, noise sigma: the multiplier is sigma / 4",
        ),
        stage=Stage.NOISE_SCALE,
        insertion=_DIRAC,
        canaries=2000,
        guesses=400,
        seen_by="any canary, either insertion, C > 1, a guesser that measures noise",
    ),
    Bug(
        name="variance-for-deviation",
        title="variance taken for standard deviation (C = 2)",
        story="sigma C is handed to a sampler that takes a variance. Less noise if "
        "sigma C > 1, more if it is below. The two mixed up: "
        "https://github.com/greenelab/SPRINT_gan/issues/5.",
        setting=Setting(clip=2.0, widths=_WIDE.widths),
        plant=take_variance_for_deviation,
        truth=Effective(
            claimed=_BASE.history,
            spent=_with_noise(sqrt(_BASE.noise / 2)),
            how="noise sqrt(sigma C): the multiplier is sqrt(sigma / C)",
        ),
        stage=Stage.NOISE_SCALE,
        insertion=Sums(),
        canaries=20_000,
        guesses=1000,
        seen_by="any canary, either insertion, sigma C > 1, a guesser that measures "
        "noise",
    ),
    Bug(
        name="noise-divided-twice",
        title="noise divided by the batch size twice",
        story="Noise is scaled for the mean and added to the sum, which is divided "
        "then. Whether to divide confuses many: "
        "https://github.com/meta-pytorch/opacus/issues/200, "
        "https://github.com/meta-pytorch/opacus/issues/753.",
        setting=_BASE,
        plant=divide_noise_twice,
        truth=AtLeast(
            claimed=_BASE.history,
            epsilon=nearly_noiseless(_BASE.noise / _BATCH, _BASE.rate, _BASE.steps),
            how="the multiplier is sigma / B with an expected batch size B = 250",
        ),
        stage=Stage.NOISE_SCALE,
        insertion=_DIRAC,
        canaries=2000,
        guesses=400,
        seen_by="any canary, either insertion, any C",
    ),
    Bug(
        name="batch-clipped",
        title="the batch clipped instead of each record",
        story="The mean gradient of the batch is clipped to C, with noise as for the "
        "mean of clipped gradients: "
        "https://github.com/JeffffffFu/"
        "Awesome-Differential-Privacy-and-Meachine-Learning/issues/9, "
        "https://github.com/ooples/AiDotNet/pull/1318.",
        setting=_BASE,
        plant=clip_whole_batch,
        truth=AtLeast(
            claimed=_BASE.history,
            epsilon=nearly_noiseless(_BASE.noise / _BATCH, _BASE.rate, _BASE.steps),
            how="among records of zero gradient, a record takes the clipped sum from 0 "
            "to B C: the multiplier is sigma / B",
        ),
        stage=Stage.CLIPPING,
        insertion=_LOUD,
        canaries=2000,
        guesses=400,
        seen_by="over-norm canaries that are records; those of norm C look right",
    ),
    Bug(
        name="per-layer-as-flat",
        title="per-layer clipping accounted as flat (17 layers)",
        story="Each of L parameters is clipped to C, and noise is sigma C. Opacus has "
        "it right and was asked why: "
        "https://github.com/meta-pytorch/opacus/issues/202.",
        setting=Setting(widths=(32,) * 17, bias=False, records=100, per_layer=True),
        plant=account_per_layer_as_flat,
        truth=Effective(
            claimed=_BASE.history,
            spent=_with_noise(_BASE.noise / sqrt(17)),
            how="sensitivity sqrt(L) C: the multiplier is sigma / sqrt(17)",
        ),
        stage=Stage.CLIPPING,
        insertion=Records(canary=Canary(norm=8.0, spread=16)),
        canaries=1000,
        guesses=200,
        seen_by="over-norm canaries spread over layers, as records; Diracs look right",
    ),
    Bug(
        name="group-without-noise",
        title="a parameter group without noise (the last layer)",
        story=f"Noise is added to the parameters of one list, and clipped gradients "
        f"come from another. {_KIND}",
        setting=Setting(widths=(50, 90), bias=False),
        plant=leave_last_layer_without_noise,
        truth=Infinite(
            claimed=_BASE.history,
            how="the group's sums are exact, so any difference of one record shows",
        ),
        stage=Stage.NOISE_SCALE,
        insertion=_DIRAC,
        canaries=4000,
        guesses=200,
        seen_by="Diracs in every parameter, either insertion, a guesser that measures "
        "noise for each parameter",
    ),
    Bug(
        name="noise-repeated",
        title="the same noise at every step",
        story=f"The generator is seeded inside the step, or a random key is used "
        f"again. {_KIND}",
        setting=_BASE,
        plant=repeat_noise,
        truth=Infinite(
            claimed=_BASE.history,
            how="noise cancels in differences of steps; they are all zero without the "
            "record, and with it are with chance 0.9^100 = 2.7e-5 only",
        ),
        stage=Stage.NOISE_INDEPENDENCE,
        insertion=_DIRAC,
        canaries=2000,
        guesses=400,
        seen_by="any canary, either insertion, a guesser that takes differences of "
        "steps; to one that adds steps up, noise looks larger, not smaller",
    ),
    Bug(
        name="noise-same-in-shards",
        title="the same noise on every rank",
        story="Each rank adds noise to its part of the parameters, and all were given "
        "the same seed: https://github.com/ihmeuw/pseudopeople/pull/280 (another kind "
        "of noise). Where each rank adds a share of the noise to the whole sum, equal "
        "shares only make more of it.",
        setting=_TWO_RANKS,
        plant=same_noise_in_every_shard,
        truth=Infinite(
            claimed=_BASE.history,
            how="noise cancels in the difference of the parts",
        ),
        stage=Stage.NOISE_INDEPENDENCE,
        insertion=PairedHalves(),
        canaries=2000,
        guesses=400,
        seen_by="Diracs, either insertion, a guesser that compares the ranks' parts; "
        "to any that looks at coordinates one by one, all is right",
    ),
    Bug(
        name="noise-after-reduce",
        title="noise on one rank only, after the reduce",
        story="Rank 0 adds noise, as in "
        "https://github.com/meta-pytorch/opacus/pull/196, but after gradients were "
        "summed over ranks: the others' models learn without noise.",
        setting=_TWO_RANKS,
        plant=add_noise_after_reduce,
        truth=Infinite(
            claimed=_BASE.history,
            how="the gradients of rank 1 are exact; nor does rank 0 keep its claim, as "
            "later gradients come from models without noise",
        ),
        stage=Stage.NOISE_SCALE,
        insertion=Ranks(),
        canaries=2000,
        guesses=400,
        seen_by="any canary, either insertion, if every rank's gradients are read; on "
        "rank 0 alone all looks right",
    ),
    Bug(
        name="shuffled-as-poisson",
        title="fixed-size shuffling accounted as Poisson",
        story="Batches are cut from a shuffled data set, and accounted for as Poisson "
        "samples: https://github.com/lxuechen/private-transformers/issues/7, "
        "https://github.com/google-deepmind/jax_privacy/pull/272. Opacus does so with "
        "poisson_sampling=False.",
        setting=Setting(poisson=False),
        plant=shuffle,
        truth=AtLeast(
            claimed=_BASE.history,
            epsilon=2.9,
            how="for a record in a crowd with the opposite gradient, from 2,000,000 "
            "drawn losses (shuffled.py); for a record alone it is 1.85",
        ),
        stage=Stage.SAMPLING,
        insertion=_DIRAC,
        canaries=4000,
        guesses=400,
        seen_by="none that we know in one run: a crowd that gives away one coordinate "
        "fills every batch, so there is room for one canary",
        visible=False,
        remark="Canaries in coordinates of their own see the pair of a record alone, "
        "of which epsilon is 1.85, below the claim of 2.00: there is nothing to "
        "refute. The pair that spends 2.9 needs all other records in the canary's "
        "coordinate.",
    ),
    Bug(
        name="accumulation-clipped-late",
        title="gradient accumulation clipped after the sum",
        story="Micro-batches are accumulated as they are, and the sum is clipped to C "
        "before noise sigma C. Clipping several records together: "
        "https://github.com/tensorflow/privacy/issues/81, "
        "https://github.com/tensorflow/privacy/issues/46.",
        setting=Setting(physical=64),
        plant=clip_accumulated_sum,
        truth=Effective(
            claimed=_BASE.history,
            spent=_with_noise(_BASE.noise / 2),
            how="a record can turn the clipped sum from -C to C: the multiplier is "
            "sigma / 2",
        ),
        stage=Stage.CLIPPING,
        insertion=_LOUD,
        canaries=2000,
        guesses=400,
        seen_by="none that we know in one run; many runs with one canary would",
        visible=False,
        remark="The whole sum has norm C at most, so a step says at most 1 / (2 "
        "sigma^2) = 0.099 nats about all coins together, and the run 9.9 nats = 14 "
        "bits. Of 14 guesses all may be right: epsilon = 2 allows each with chance "
        "0.88, and 0.88^14 = 0.17. Of all 2000, a share of 0.55 at most, by Pinsker's "
        "inequality, where the claim allows 0.59.",
    ),
    Bug(
        name="realised-batch-size",
        title="division by the realised batch size",
        story="The noisy sum is divided by the size of the batch, so the scale of the "
        "noise tells that size, and the size who joined. Asked for in "
        "https://github.com/meta-pytorch/opacus/issues/420; the leak: "
        "https://github.com/meta-pytorch/opacus/issues/571, "
        "https://github.com/meta-pytorch/opacus/issues/819.",
        setting=_BASE,
        plant=divide_by_realised_size,
        truth=AtLeast(
            claimed=_BASE.history,
            epsilon=few_records(dimension=4890, rate=_BASE.rate, steps=_BASE.steps),
            how="a data set of two records, of which one is removed: noise halves when "
            "both join. For a record alone among 2,500 it is about 1.015 times the "
            "claim; in a crowd of the opposite gradient at least 2.7 times, with room "
            "for one canary",
        ),
        stage=Stage.AGGREGATION,
        insertion=_DIRAC,
        canaries=2000,
        guesses=400,
        seen_by="none that we know in one run with many canaries: the size is one "
        "number for all",
        visible=False,
        remark="Canaries are there whatever their coins, so the size does not depend "
        "on them. Were they removed instead, the sizes of all steps would tell about "
        "how many coins are one, about (1/2) ln(1 + 100 q / (2 (1 - q))) = 0.9 nats, "
        "and nothing about which.",
    ),
    Bug(
        name="accountant-lost",
        title="accountant state lost on resume (4 of 100 steps counted)",
        story="The checkpoint has model and optimizer, but no accountant: "
        "https://github.com/meta-pytorch/opacus/issues/117, "
        "https://github.com/meta-pytorch/opacus/issues/373.",
        setting=_WIDE,
        plant=lose_accountant_on_resume,
        truth=Effective(
            claimed=((_BASE.noise, _BASE.rate, 4),),
            spent=_BASE.history,
            how="the training itself is right",
        ),
        stage=Stage.ACCOUNTING,
        insertion=Sums(),
        canaries=20_000,
        guesses=2000,
        seen_by="any canary, either insertion, if the audit is resumed with the "
        "training; without statistics, by comparing numbers of steps",
        remark="The result also notes, without statistics, that 100 steps were made "
        "and 4 counted.",
    ),
    Bug(
        name="wrong-record-count",
        title="sample rate from the wrong n (five times too large)",
        story="The accountant is told a sample rate that is not the loader's, for "
        "example without the factor of gradient accumulation: "
        "https://github.com/google-deepmind/jax_privacy/pull/287, "
        "https://github.com/google-research/federated/issues/25.",
        setting=_LESS_NOISE,
        plant=account_for_more_records,
        truth=Effective(
            claimed=((_LESS_NOISE.noise, _BASE.rate / 5, _BASE.steps),),
            spent=_LESS_NOISE.history,
            how="the training itself is right",
        ),
        stage=Stage.ACCOUNTING,
        insertion=_DIRAC,
        canaries=4000,
        guesses=400,
        seen_by="canaries that are records, which join at the loader's rate; those "
        "that are added to sums join at the rate that is accounted for",
        remark="The result also notes, without statistics, that the loader samples at "
        "another rate than is accounted for.",
    ),
    Bug(
        name="clipped-before-unscaling",
        title="clipping before loss-scale removal (scale 1/4)",
        story="Gradients of a scaled loss are clipped, and the sum is divided by the "
        "scale before noise is added: https://github.com/nntrainer/nntrainer/"
        "issues/2746 (without privacy). A scale above one only makes the sum too "
        "small; one below, as of a loss divided by the number of accumulation steps, "
        "makes it too large.",
        setting=_BASE,
        plant=clip_before_unscaling,
        truth=Effective(
            claimed=_BASE.history,
            spent=_with_noise(_BASE.noise / 4),
            how="sensitivity 4 C: the multiplier is sigma / 4",
        ),
        stage=Stage.CLIPPING,
        insertion=_DIRAC,
        canaries=2000,
        guesses=400,
        seen_by="canaries that are records, of any norm from C up; in sums, which are "
        "joined after the clipping, all looks right",
    ),
    Bug(
        name="augmentations-clipped",
        title="several augmentations each clipped to C (2 of each record)",
        story=f"Each augmentation is a row of the batch, clipped and summed by itself. "
        f"They are to be averaged before the clipping: "
        f"https://arxiv.org/abs/2204.13650. {_KIND}",
        setting=Setting(records=100),
        plant=augment_each_record,
        truth=Effective(
            claimed=_BASE.history,
            spent=_with_noise(_BASE.noise / 2),
            how="sensitivity 2 C: the multiplier is sigma / 2",
        ),
        stage=Stage.CLIPPING,
        insertion=_DIRAC,
        canaries=4000,
        guesses=200,
        seen_by="canaries that are records, in all rows of theirs",
    ),
    Bug(
        name="half-precision-overflow",
        title="norm overflow in half precision",
        story="Squares or gradients beyond 65504 are infinite: "
        "https://github.com/facebookresearch/fairscale/pull/263 (without privacy). A "
        "norm that is infinite where the gradient is not shrinks the record to zero, "
        "which is private. An infinite gradient times zero is no number, and tells "
        "that the record was there.",
        setting=_BASE,
        plant=clip_half_precision,
        truth=Infinite(
            claimed=_BASE.history,
            how="a sum that is no number is impossible without the record, and has "
            "chance 1 - 0.9^100 with it",
        ),
        stage=Stage.CLIPPING,
        insertion=Records(canary=Canary(norm=1e5)),
        canaries=4000,
        guesses=100,
        seen_by="canaries of norm above 65504 that are records, a guesser that reads "
        "what is no number as a join",
        remark="The first step that a canary joins breaks the model: nobody overlooks "
        "it for long.",
    ),
    Bug(
        name="ghost-norm-missing-layer",
        title="ghost-clipping norms missing a layer",
        story=f"A layer that is unfrozen after the model was wrapped is trained, but "
        f"not in the norms. {_KIND}",
        setting=_SHORT,
        plant=forget_embedding_norm,
        truth=Infinite(
            claimed=_SHORT.history,
            how="nothing in the algorithm bounds the layer's part of a gradient",
        ),
        stage=Stage.CLIPPING,
        make=token_run,
        insertion=Examples(),
        canaries=40,
        guesses=40,
        seen_by="canaries that are examples, with large gradients in that layer and "
        "small ones elsewhere, and a small C; ghost clipping has no gradient to "
        "overwrite, and sums are joined after it",
    ),
)

BUGS: Final[Mapping[str, Bug]] = MappingProxyType(
    {bug.name: bug for bug in (*_AUDITED, *NEWCOMERS)}
)
