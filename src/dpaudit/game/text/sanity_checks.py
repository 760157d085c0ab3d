"""What sanity checks say: was there anything to see, and was it the run designed?"""

from collections.abc import Mapping
from typing import Final

from dpaudit.bounds.bound import p_value_text
from dpaudit.game.text.terms import Template, Values
from dpaudit.game.verdict import ALPHA_OF_EFFECT, BETTER_THAN_CHANCE, TIES

__all__ = ["SENTENCES"]

_MANY_TIES: Final = 0.05  # of the guesses; above this the result says what to do


def _better_than_chance(v: Values) -> str:
    p = f"(p {p_value_text(v.p_value, ALPHA_OF_EFFECT)})"
    if v.p_value <= ALPHA_OF_EFFECT:
        return f"the guesses are better than chance {p}"
    return (
        "no effect of any canary was seen: the guesses are not clearly better than "
        f"chance {p}"
    )


def _ties(v: Values) -> str:
    said = (
        f"ties decided {v.decided:,} of {v.guesses:,} guesses, all against the auditor"
    )
    if v.decided > _MANY_TIES * v.guesses:
        said += (
            "; next time write scores with all their digits, or register the design "
            "with a key, which breaks ties at random and costs less"
        )
    return said


def _signal(v: Values) -> str:
    digits = 2 if v.error >= 0.1 else 3
    slope = f"slope {v.slope:.{digits}f} ± {v.error:.{digits}f}"
    what = {
        "vague": "whether canaries arrived cannot be told",
        "recovered": "canaries arrived",
        "lost": "no canary arrived",
        "sign_reversed": "canaries arrived with the wrong sign",
        "scaled": f"canaries arrived at {v.slope:.3g} times their size",
    }[v.outcome]
    return f"{what}: {slope}, where 1 is expected"


def _guesses_as_good(v: Values) -> str:
    said = f"{v.right} of {v.guesses} guesses right, {v.expected:.0f} expected"
    if not v.far_fewer:
        return f"guesses were as good as the guesser said: {said}"
    return (
        "guesses were far worse than the guesser said, so that its model of this run "
        f"is wrong and faults may go unseen: {said}"
    )


def _guesses_not_made(v: Values) -> str:
    said = (
        f"{v.missing:,} of the {v.committed:,} guesses that were committed to were not "
        "made, and count as wrong; commit to fewer before the run"
    )
    if v.get("adaptive"):
        said += ", as dpaudit.theory.posterior.plan_count plans them"
    return said


def _told_apart(v: Values) -> str:
    do = "scores tell" if v.told else "scores do not tell"
    return (
        f"{do} control records that were trained on {v.repeats} times from others "
        f"(p {p_value_text(v.p_value)})"
    )


def _excluded(v: Values) -> str:
    p = f"(p {p_value_text(v.p_value)})"
    if v.followed:
        return (
            "excluded canaries look no more trained on than control records that were "
            f"left out {p}"
        )
    return (
        "excluded canaries look more trained on than control records that were left "
        f"out {p}: canaries may have been left in the data"
    )


SENTENCES: Final[Mapping[str, Template]] = {
    "controls.told_apart": _told_apart,
    "controls.excluded": _excluded,
    BETTER_THAN_CHANCE: _better_than_chance,
    TIES: _ties,
    "signal": _signal,
    "signal.not_seen": "nothing shows that any canary arrived",
    "guesses_as_good": _guesses_as_good,
    "guesses_not_made": _guesses_not_made,
    "could_not_refute": "the audit could not have refuted the claim, not even with "
    "every guess that was made right",
    "stopped": "the audit stopped: {error}; training went on without canaries",
    "failed_itself": "the audit stopped, as it failed itself ({kind}: {error}); "
    "training went on without canaries",
    "stopped_elsewhere": "the audit stopped on another rank, whose result says why",
}
