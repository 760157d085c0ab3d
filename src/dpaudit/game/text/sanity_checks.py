"""Sentences of sanity checks: could the audit have seen an effect, as designed?"""

from collections.abc import Mapping
from typing import Final

from dpaudit.bounds.bound import p_value_text
from dpaudit.game.text.terms import Template, Values
from dpaudit.game.verdict import ALPHA_OF_EFFECT, BETTER_THAN_CHANCE, TIES

__all__ = ["SENTENCES"]

_MANY_TIES: Final = 0.05  # share of the guesses above which advice is given


def _better_than_chance(v: Values) -> str:
    p = f"(p {p_value_text(v.p_value, ALPHA_OF_EFFECT)})"
    if v.p_value <= ALPHA_OF_EFFECT:
        return f"guesses are better than chance {p}"
    return (
        "no effect of any canary was detected: guesses are not clearly better than "
        f"chance {p}"
    )


def _ties(v: Values) -> str:
    sentence = (
        f"ties decided {v.decided:,} of {v.guesses:,} guesses, all against the auditor"
    )
    if v.decided > _MANY_TIES * v.guesses:
        sentence += (
            "; next time write scores with all their digits, or register the design "
            "with a key, which breaks ties at random and costs less"
        )
    return sentence


def _signal(v: Values) -> str:
    digits = 2 if v.error >= 0.1 else 3
    slope = f"slope {v.slope:.{digits}f} ± {v.error:.{digits}f}"
    what = {
        "vague": "the canary signal cannot be distinguished from noise",
        "recovered": "canary signal recovered",
        "lost": "canary signal lost",
        "sign_reversed": "canary signal recovered with the wrong sign",
        "scaled": f"canary signal {v.slope:.3g} times its size",
    }[v.outcome]
    return f"{what} ({slope}; expected: 1)"


def _guesses_as_good(v: Values) -> str:
    seen = f"{v.right} of {v.guesses} correct, {v.expected:.0f} predicted"
    if not v.far_fewer:
        return f"guesses as accurate as the guesser predicted ({seen})"
    return (
        "guesses far less accurate than the guesser predicted, so its model of this "
        f"run is wrong and faults may go undetected ({seen})"
    )


def _guesses_not_made(v: Values) -> str:
    text = (
        f"{v.missing:,} of the {v.committed:,} guesses committed to were not made and "
        "count as incorrect; commit to fewer before the run"
    )
    if v.get("adaptive"):
        text += ", as dpaudit.theory.posterior.plan_count plans them"
    return text


def _distinguished(v: Values) -> str:
    do = "distinguish" if v.distinguished else "do not distinguish"
    return (
        f"scores {do} control records trained on {v.repeats} times from others "
        f"(p {p_value_text(v.p_value)})"
    )


def _excluded(v: Values) -> str:
    p = f"(p {p_value_text(v.p_value)})"
    if v.followed:
        return f"excluded canaries score no higher than excluded control records {p}"
    return (
        f"excluded canaries score higher than excluded control records {p}: canaries "
        "may have been left in the data"
    )


SENTENCES: Final[Mapping[str, Template]] = {
    "controls.distinguished": _distinguished,
    "controls.excluded": _excluded,
    BETTER_THAN_CHANCE: _better_than_chance,
    TIES: _ties,
    "signal": _signal,
    "signal.not_seen": "nothing shows that any canary was inserted",
    "guesses_as_good": _guesses_as_good,
    "guesses_not_made": _guesses_not_made,
    "could_not_refute": "the audit had no power: not even correct guesses throughout "
    "would refute the claim; use more canaries and guesses",
    "stopped": "the audit stopped: {error}; training continued without canaries",
    "failed_itself": "the audit stopped because of an error of its own ({kind}: "
    "{error}); training continued without canaries",
    "stopped_elsewhere": "the audit stopped on another rank; see its result",
    "ranks.lost": "another rank was lost or did not answer (all must call finish()); "
    "the result rests on the steps before, and on what this rank alone checked",
}
