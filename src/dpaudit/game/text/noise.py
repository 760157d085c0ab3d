"""Sentences about noise: how much was measured, and what is wrong with it."""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.terms import (
    FaultText,
    Template,
    Values,
    counted,
    parameters,
    with_error,
)

__all__ = ["FAULTS", "SENTENCES"]

_QUARTILE: Final = 0.6744897501960817  # median of |z| for a standard normal z
_NOTHING: Final = 1e-3  # a ratio below which there is no noise


def _measured(v: Values) -> str:
    single = f"detects a single step with less than {v.detectable_step:.2f} of it"
    if not v.detectable_step:
        single = "too few coordinates to detect a single step without noise"
    return (
        f"measured {with_error(v.ratio, v.error)} times the configured noise in "
        f"{counted(v.parameters, 'parameter')} over {counted(v.steps, 'step')}; "
        f"{single}{_passed_over(v)}"
    )


def _passed_over(v: Values) -> str:
    passed = []
    if v.without:
        passed += [f"{counted(v.without, 'step')} without configured noise"]
    if v.not_finite:
        passed += [f"{counted(v.not_finite, 'step')} with noise that is not finite"]
    return f"; left out: {', '.join(passed)}" if passed else ""


def _correlations(v: Values) -> str:
    sentence, of_steps = "the largest correlation", v.step_places > 0
    if of_steps:
        sentence += (
            f" of two steps is {v.step_cosine:.2g} of {v.step_places} coordinates,"
        )
    if v.coordinate_places:
        sentence += f" of two coordinates {'' if of_steps else 'is '}"
        sentence += f"{v.coordinate_cosine:.2g} over {v.coordinate_places} steps,"
    sentence += f" {'more than' if v.beyond_chance else 'as'} chance explains"
    if v.sampled < v.steps:
        sentence += f"; in a random sample of {v.sampled} of {v.steps} steps"
    return sentence


def _rounding(v: Values) -> str:
    where = f" in {parameters(v.subject)}" if v.subject else ""
    return (
        f"precision too low: rounding of the sums may be {v.share:.2g} of the noise"
        f"{where}; keep parameters, sums and noise in float32 (autocast may then still "
        "compute in 16 bits)"
    )


def _step(v: Values) -> str:
    what = f"is {v.ratio:.2g}x the configured" if v.ratio > _NOTHING else "is missing"
    more = f", and too small in {v.others} more steps" if v.others else ""
    return f"the noise of step {v.step} {what}{more}"


def _where(v: Values) -> str:
    return "every parameter" if v.everywhere else parameters(v.subject)


def _scale(v: Values) -> str:
    if v.most < _NOTHING:
        return f"no noise in {'any parameter' if v.everywhere else _where(v)}"
    ratio = " to ".join(dict.fromkeys((f"{v.least:.3f}", f"{v.most:.3f}")))
    return f"noise is {ratio}x the configured value in {_where(v)}"


def _steps_repeated(v: Values) -> str:
    minus = "minus " if v.reversed else ""
    return f"the noise of step {v.later} is {minus}that of step {v.earlier}"


def _went_back(v: Values) -> str:
    return (
        f"the generator went back to the state of step {v.earlier} at step "
        f"{v.later}{' or before' if v.sampled else ''} (seeded anew, or resumed from "
        "a checkpoint)"
    )


SENTENCES: Final[Mapping[str, Template]] = {
    "noise.measured": _measured,
    "noise.correlations": _correlations,
    "noise.not_read": lambda v: (
        f"no step had noise that could be read{_passed_over(v)}"
    ),
    "noise.too_few": "needs at least three steps with noise and three coordinates",
    "noise.rounding": _rounding,
    "noise.more": lambda v: (
        f"more noise than configured in {_where(v)}: "
        f"{with_error(v.ratio, v.error)} times; if it is noise, it does not weaken "
        "privacy"
    ),
    "noise.more_in_steps": "more noise than configured in {more} of {steps} steps, "
    "{ratio:.2f} times in step {step}; if it is noise, it does not weaken privacy",
    "noise.fixed_seed": "the noise comes from a generator with a fixed seed: whoever "
    "knows the seed can make the noise again and take it off the model. Before you "
    "train what you release, call torch.seed(), or use secure_mode",
    "rehearsal.noise_constant": "the noise of the loop's first {steps} steps is the "
    "same with other random seeds set before it: the loop seeds its noise, or has a "
    "generator of its own. Whoever knows such a seed can make the noise again and take "
    "it off the model; draw it anew for each run, and keep it secret",
    "rehearsal.noise_not_played": "the loop could not be played with the noise that it "
    "draws ({error})",
    "sums.half_precision": "sums are kept in half precision, in which canaries may be "
    "lost beside large real gradients; keep parameters in float32 and use autocast",
    "clipping.per_parameter": "parameters are clipped apart, so that a canary in one "
    "of them is cut to less than the whole norm; Canary(norm=..., spread=...) is in "
    "several",
    "sums.not_finite": "{sums} noisy sums were no finite numbers",
}
_INDEPENDENT: Final = "independent noise"
FAULTS: Final[Mapping[str, FaultText]] = {
    "noise.shape": FaultText(
        what="the noise is not normal",
        measured=lambda v: (
            f"{v.inside:.3f} of it within {_QUARTILE:.3f} standard "
            f"deviations, the largest of {v.values:.0f} values {v.largest:.2f} off"
        ),
        expected="normal noise, half of it within,",
        cause={
            "heavy": "noise of another distribution with heavier tails, as Laplace's",
            "light": "noise of another distribution with lighter tails, or truncated",
        },
    ),
    "noise.step": FaultText(
        what=_step,
        measured="{ratio:.2g}x the configured noise in {coordinates} coordinates",
        expected="1",
        cause="noise is not added in every step, or with another multiplier than was "
        "accounted for",
    ),
    "noise.steps_repeated": FaultText(
        what=_steps_repeated,
        measured="correlation {cosine:.3f} of {places} coordinates; repeated steps: "
        "{repeated} of {steps}",
        expected=_INDEPENDENT,
        cause={
            "several_times": "the generator is seeded anew, or set back, several times",
            "sign_reversed": "one draw is used twice, with its sign turned",
            "every_epoch": "noise is seeded anew every {period} steps (each epoch)",
            "every_step": "the generator is seeded in every step",
            "went_back": _went_back,
        },
    ),
    "rehearsal.noise_repeated": FaultText(
        what=lambda v: f"{_steps_repeated(v)} of the loop",
        measured="repeated steps: {repeated} of {steps} in a rehearsal",
        expected=_INDEPENDENT,
        cause={
            "every_step": "the generator is seeded in every step",
            "now_and_then": "the generator is seeded anew, or set back, in each epoch "
            "or now and then",
        },
    ),
    "noise.default_seed": FaultText(
        what="the noise comes from a generator that nobody seeded, which gives the "
        "same numbers in every process",
        measured="the seed that torch gives to every new Generator",
        expected="a seed that nobody knows",
        cause="torch.Generator() as noise_generator; call its seed(), or leave it out",
    ),
    "noise.broadcast": FaultText(
        what=lambda v: (
            f"the noise of {parameters(v.subject)} is the same in several "
            "of its coordinates"
        ),
        measured="{repeated} of {coordinates} coordinates repeat another one",
        expected=_INDEPENDENT,
        cause="noise of a smaller shape is broadcast over the parameter",
    ),
    "noise.shared": FaultText(
        what=lambda v: f"the noise of {parameters(v.subject)} is the same",
        measured="{repeated} of {coordinates} coordinates repeat another one",
        expected=_INDEPENDENT,
        cause="one noise is used for several parameters, or each is seeded alike",
    ),
    "noise.steps_correlated": FaultText(
        what="the noise of steps {later} and {earlier} is correlated",
        measured="correlation {cosine:.3f} in {places} places",
        expected=_INDEPENDENT,
        cause="part of the noise of one step is used again in another",
    ),
    "noise.coordinates_correlated": FaultText(
        what=lambda v: (
            f"the noise of {parameters(v.subject)} is correlated between coordinates"
        ),
        measured="correlation {cosine:.3f} in {places} places",
        expected=_INDEPENDENT,
        cause="part of the noise is broadcast, or used for several parameters",
    ),
    "noise.constant": FaultText(
        what=lambda v: f"a constant is added with the noise in {parameters(v.subject)}",
        measured="mean {mean:.3g}",
        expected="mean 0",
        cause="something that stays from step to step is added besides noise, or part "
        "of the noise is the same in every step",
    ),
    "noise.scale": FaultText(
        what=_scale,
        measured=lambda v: f"{with_error(v.ratio, v.error)} of configured",
        expected="1",
        cause={
            "apart": "parameters have different noise scales",
            "none": "no noise is added",
            "none_there": "no noise is added there",
            "everywhere": "a bug that scales all noise",
            "multiplier_missing": "a bug that scales all noise: the noise "
            "multiplier of {multiplier:.4g} is left out",
            "multiplier_squared": "a bug that scales all noise: the noise "
            "multiplier of {multiplier:.4g} is applied twice",
            "one_parameter": "that parameter is left out when noise is added, or has "
            "a scale of its own",
        },
    ),
}
