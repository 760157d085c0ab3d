"""Bugs without an audit made for each: there is the default audit, and no other.

None of them is within reach of canaries in the sums, which join after the clipping, at
the rate that is accounted for, and beside every other way out of a step. Who looks is
named under ``seen_by``: the probe of the user's step, the watch on the noise, the watch
on batches.
"""

from functools import partial
from math import sqrt
from typing import Final

from dpaudit.game.findings import Stage
from dpaudit_lab.bugzoo.bug import Bug
from dpaudit_lab.bugzoo.clipping import (
    add_last_layer_unclipped,
    clip_to_larger_norm,
    forget_norm_of_last_layer,
    leave_unclipped,
)
from dpaudit_lab.bugzoo.ghost import tied_run
from dpaudit_lab.bugzoo.honest import Run, Setting
from dpaudit_lab.bugzoo.loops import (
    average_over_tokens,
    keep_mean_in_buffer,
    mix_records,
    normalise_by_batch,
    tell_mean_as_sum,
    train_rest_without_noise,
    update_beside_optimizer,
)
from dpaudit_lab.bugzoo.noise import (
    add_laplace_noise,
    add_uniform_noise,
    begin_noise_anew,
    broadcast_noise,
    same_noise_for_parameters,
)
from dpaudit_lab.bugzoo.sampling import cut_to_fixed_size, draw_same_batches
from dpaudit_lab.bugzoo.truth import AtLeast, Effective, History, Infinite

__all__ = ["NEWCOMERS"]

_BASE: Final = Setting()
_KIND: Final = "A known kind of bug; no public report is cited."
_PROBE: Final = "the probe of the user's step"
_NOISE_WATCH: Final = "the watch on the noise of each step"
_BATCH_WATCH: Final = "the watch on batches as the loader yields them"
# As accounted for, rounded down: seconds, which every import would take; a test does.
_OF_HALF_THE_NOISE: Final = 5.68
_UNBOUNDED: Final = Infinite(
    claimed=_BASE.history,
    how="nothing in the algorithm bounds that part of a record's gradient",
)
_NO_NOISE: Final = Infinite(
    claimed=_BASE.history,
    how="what leaves the step there is exact, so any difference of one record shows",
)


def _with_noise(noise: float) -> History:
    return ((noise, _BASE.rate, _BASE.steps),)


def _as_it_is(_: Run) -> None:
    """Plant nothing: the training that was set up is the fault."""


NEWCOMERS: Final = (
    Bug(
        name="no-clipping",
        title="no clipping at all",
        story="Noise is added, and gradients are summed as they are. Asked for in "
        "https://github.com/meta-pytorch/opacus/issues/177.",
        setting=_BASE,
        plant=leave_unclipped,
        truth=_UNBOUNDED,
        stage=Stage.CLIPPING,
        seen_by=_PROBE,
    ),
    Bug(
        name="norm-without-layer",
        title="norms without a layer (the last one)",
        story=f"A record is clipped by the norm of some layers, and all of them are "
        f"added up. {_KIND}",
        setting=_BASE,
        plant=forget_norm_of_last_layer,
        truth=_UNBOUNDED,
        stage=Stage.CLIPPING,
        seen_by=_PROBE,
    ),
    Bug(
        name="clipped-to-larger-norm",
        title="clipping to sqrt(L) C, noise for C (L = 4)",
        story=f"The norm of all L parameters together is taken for the one that noise "
        f"is scaled by. {_KIND}",
        setting=_BASE,
        plant=clip_to_larger_norm,
        truth=Effective(
            claimed=_BASE.history,
            spent=_with_noise(_BASE.noise / 2),
            how="sensitivity 2 C: the multiplier is sigma / 2",
        ),
        stage=Stage.CLIPPING,
        seen_by=_PROBE,
    ),
    Bug(
        name="layer-after-clipping",
        title="a layer added after the clipping (the last one)",
        story=f"The gradient of one layer comes from another backward pass, and joins "
        f"the sum past the clipping. {_KIND}",
        setting=_BASE,
        plant=add_last_layer_unclipped,
        truth=_UNBOUNDED,
        stage=Stage.CLIPPING,
        seen_by=_PROBE,
    ),
    Bug(
        name="tied-head-ghost",
        title="ghost clipping of a tied output layer (unpatched Opacus)",
        story="The output layer is the embedding, used as a matrix. Opacus takes ghost "
        "norms in hooks of modules, which see one of the two uses; nothing is patched "
        "here. Tied layers raise an error elsewhere: "
        "https://github.com/meta-pytorch/opacus/issues/413.",
        setting=Setting(clip=0.1, records=300),
        make=tied_run,
        plant=_as_it_is,
        truth=_UNBOUNDED,
        stage=Stage.CLIPPING,
        seen_by=_PROBE,
    ),
    Bug(
        name="mixup",
        title="records of a batch mixed (mixup)",
        story=f"Each row is the mean of two records, and is clipped as one. {_KIND}",
        setting=_BASE,
        plant=mix_records,
        truth=AtLeast(
            claimed=_BASE.history,
            epsilon=_OF_HALF_THE_NOISE,
            how="a record is in two rows, each of norm C: the multiplier is sigma / 2; "
            "a row that turns around would make it less",
        ),
        stage=Stage.GRADIENTS,
        seen_by=_PROBE,
    ),
    Bug(
        name="batch-statistics",
        title="features normalised by their batch",
        story="Every record's gradient depends on who is beside it. Opacus refuses "
        "layers that do so: https://github.com/meta-pytorch/opacus/issues/319; code "
        "before the model it does not see.",
        setting=_BASE,
        plant=normalise_by_batch,
        truth=Infinite(
            claimed=_BASE.history,
            how="one record moves what every other puts in, and there is no limit to "
            "the number of others",
        ),
        stage=Stage.GRADIENTS,
        seen_by=_PROBE,
    ),
    Bug(
        name="loss-over-tokens",
        title="loss divided by the tokens of the batch",
        story="The mean is over all tokens of a batch, so that a long record shrinks "
        "the others' part: https://github.com/meta-pytorch/torchtune/pull/1875 makes "
        "it so, for good reasons (without privacy).",
        setting=_BASE,
        plant=average_over_tokens,
        truth=Infinite(
            claimed=_BASE.history,
            how="a record of many tokens takes away what every other puts in, and "
            "there is no limit to the number of others",
        ),
        stage=Stage.GRADIENTS,
        seen_by=_PROBE,
    ),
    Bug(
        name="mean-told-as-sum",
        title="a mean loss told to Opacus as a sum",
        story="With loss_reduction='sum' records' gradients are taken as they come, "
        "and those of a mean are divided by the size of the batch. Why one must be "
        "told: https://github.com/pytorch/pytorch/pull/80892.",
        setting=_BASE,
        plant=tell_mean_as_sum,
        truth=AtLeast(
            claimed=_BASE.history,
            epsilon=_OF_HALF_THE_NOISE,
            how="in a crowd of the opposite gradient, of norm B C each, a record's own "
            "part is C and the others' grows by C / B each: 2 C in a large batch",
        ),
        stage=Stage.AGGREGATION,
        seen_by=_PROBE,
    ),
    Bug(
        name="second-optimizer",
        title="a second optimizer without noise",
        story=f"A part of the model, left out of make_private, is trained by an "
        f"optimizer of its own. {_KIND}",
        setting=_BASE,
        plant=train_rest_without_noise,
        truth=_NO_NOISE,
        stage=Stage.SIDE_PATHS,
        seen_by=f"{_PROBE}, and the watch on what changes beside the optimizer",
    ),
    Bug(
        name="statistic-in-buffer",
        title="a mean of records kept in a buffer",
        story=f"A running mean of the features is saved with the model. {_KIND}",
        setting=_BASE,
        plant=keep_mean_in_buffer,
        truth=_NO_NOISE,
        stage=Stage.SIDE_PATHS,
        seen_by=f"{_PROBE}, and the watch on what changes beside the optimizer",
    ),
    Bug(
        name="update-beside-optimizer",
        title="a weight updated by hand, without noise",
        story=f"The loop moves a bias by its plain gradient, by writing to its data. "
        f"{_KIND}",
        setting=_BASE,
        plant=update_beside_optimizer,
        truth=_NO_NOISE,
        stage=Stage.SIDE_PATHS,
        seen_by=f"{_PROBE}, and the watch on what changes beside the optimizer",
    ),
    Bug(
        name="noise-again-on-resume",
        title="noise that begins anew on resume (step 50)",
        story="The generator is seeded when a training is resumed, as it was when it "
        "began: https://github.com/ByteDance-Seed/VeOmni/pull/1189 (without privacy).",
        setting=_BASE,
        plant=partial(begin_noise_anew, every=50),
        truth=Infinite(
            claimed=_BASE.history,
            how="noise cancels in the difference of steps 50 apart",
        ),
        stage=Stage.NOISE_INDEPENDENCE,
        seen_by=_NOISE_WATCH,
    ),
    Bug(
        name="noise-again-each-epoch",
        title="the same noise in every epoch",
        story=f"The generator is seeded at the start of each epoch. {_KIND}",
        setting=_BASE,
        plant=partial(begin_noise_anew, every=10),
        truth=Infinite(
            claimed=_BASE.history,
            how="noise cancels in the difference of steps an epoch apart",
        ),
        stage=Stage.NOISE_INDEPENDENCE,
        seen_by=_NOISE_WATCH,
    ),
    Bug(
        name="noise-broadcast",
        title="noise broadcast over rows",
        story=f"Noise is drawn with one column, and torch spreads it over all. {_KIND}",
        setting=_BASE,
        plant=broadcast_noise,
        truth=Infinite(
            claimed=_BASE.history,
            how="noise cancels in the difference of two places of a row",
        ),
        stage=Stage.NOISE_INDEPENDENCE,
        seen_by=_NOISE_WATCH,
    ),
    Bug(
        name="noise-same-for-parameters",
        title="the same noise for parameters of one shape",
        story="A random key is used for all parameters: "
        "https://github.com/jax-ml/jax/pull/3646.",
        setting=Setting(widths=(50, 50, 50)),
        plant=same_noise_for_parameters,
        truth=Infinite(
            claimed=_BASE.history,
            how="noise cancels in the difference of the two parameters",
        ),
        stage=Stage.NOISE_INDEPENDENCE,
        seen_by=_NOISE_WATCH,
    ),
    Bug(
        name="noise-uniform",
        title="uniform noise of the same variance",
        story=f"rand where randn was meant. {_KIND}",
        setting=_BASE,
        plant=add_uniform_noise,
        truth=Infinite(
            claimed=_BASE.history,
            how="with the record a sum is where it cannot be without it, with chance "
            "0.128 whenever the record joins",
        ),
        stage=Stage.NOISE_SCALE,
        seen_by=_NOISE_WATCH,
    ),
    Bug(
        name="noise-laplace",
        title="Laplace noise of the same variance",
        story=f"A mechanism for the L1 norm, accounted for as if it were normal. "
        f"{_KIND}",
        setting=_BASE,
        plant=add_laplace_noise,
        truth=Effective(
            claimed=_BASE.history,
            spent=_with_noise(_BASE.noise / sqrt(2)),
            how="for a gradient that is spread evenly the loss is, in the limit of "
            "many parameters, that of normal noise with sigma / sqrt(2)",
        ),
        stage=Stage.NOISE_SCALE,
        seen_by=_NOISE_WATCH,
    ),
    Bug(
        name="same-batches-each-epoch",
        title="the same batches in every epoch",
        story="The sampler is seeded anew for each epoch, or not told that one has "
        "begun: https://github.com/cszn/KAIR/pull/106 (without privacy).",
        setting=_BASE,
        plant=draw_same_batches,
        truth=Effective(
            claimed=_BASE.history,
            spent=((_BASE.noise / sqrt(10), _BASE.rate, 10),),
            how="ten epochs of one draw are a tenth of the steps with noise smaller by "
            "sqrt(10)",
        ),
        stage=Stage.SAMPLING,
        seen_by=_BATCH_WATCH,
    ),
    Bug(
        name="fixed-size-in-poisson",
        title="batches of a fixed size from a sampler called Poisson",
        story="Batches are cut from a shuffled data set, by a sampler that Opacus and "
        "we take for its own: what https://github.com/meta-pytorch/opacus/pull/128 "
        "put right.",
        setting=_BASE,
        plant=cut_to_fixed_size,
        truth=AtLeast(
            claimed=_BASE.history,
            epsilon=2.9,
            how="as of shuffled-as-poisson",
        ),
        stage=Stage.SAMPLING,
        seen_by=_BATCH_WATCH,
    ),
)
