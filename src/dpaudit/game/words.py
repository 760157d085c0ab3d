"""A result in words, at one place: the sentence, what was shown, facts in rows.

Printing and ``dpaudit audit`` say ``sentence``; explanations, reports and model cards
``verdict`` with ``shown``; a notebook shows the word and rows (``html``). All of them
begin with ``head`` where a training was audited: what was found, what was not looked
at, what was. Nothing that says something about the claim is said of a void audit. Lower
bounds are rounded down and p-values up.

Elsewhere are the words of a test and of a bound by themselves (``bounds/bound``), of
what guesses would have had to do (``game/strength``), of several runs together
(``game/combining``), of ``dpaudit bound``, which has no result (``cli/bound``), and of
what was derived again (``evidence/derivation``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final, final

import numpy as np

from dpaudit.bounds.bound import p_value_text, rounded_down
from dpaudit.bounds.methods import test_claim
from dpaudit.bounds.strength import mechanism_ceiling
from dpaudit.errors import on_one_line
from dpaudit.game.ledger import Fault, How, Ledger, Road
from dpaudit.game.verdict import CHANCE, Verdict
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP

if TYPE_CHECKING:
    from dpaudit.game.design import Design
    from dpaudit.game.result import Result, TrainingRecord

__all__ = [
    "Fact",
    "claim_words",
    "details",
    "facts",
    "head",
    "html",
    "ledger_facts",
    "looked",
    "noise_caught",
    "note_on_ranking",
    "note_on_strength",
    "notes",
    "opening",
    "roads",
    "sentence",
    "shown",
    "verdict",
]

_LARGE_PRODUCT = 30.0  # of canaries and delta; docs/how-to/audit-a-large-table.md
_FAR = 4.0  # standard deviations, beyond which scores are said to be turned round


def opening(verdict: Verdict, reason: str) -> str:
    """Return the first sentence about an audit: the word, and why if it is no answer.

    Example:
        >>> opening(Verdict.VOID, "no canary arrived")
        'Void: no canary arrived. Nothing is said about the claim.'
    """
    said = capital(verdict) + f": {on_one_line(reason)}" * bool(reason)
    silent = " Nothing is said about the claim." * (verdict is Verdict.VOID)
    return f"{said}.{silent}"


def claim_words(claim: Guarantee, delta: float) -> str:
    """Return a claim as words: its epsilon at delta, and whether it says more."""
    epsilon = f"epsilon = {claim.epsilon_at(delta):.4g}"
    if delta:
        epsilon += f" at delta = {delta:g}"
    if isinstance(claim, ApproxDP | PureDP):
        return epsilon
    return f"{epsilon} (a whole curve)"


# What is said beside a result


def notes(result: "Result", unseen: Iterable[str], *, registered: bool) -> list[str]:
    """Return what a result of scores rests on that nobody can see from it.

    Args:
        result: What was found.
        unseen: What the scores themselves do not show.
        registered: Whether its design was fixed before the run.
    """
    found = list(unseen)
    if not registered:
        found.append(
            "the verdict holds if claim, alpha and guesses were chosen without looking "
            "at the coins"
        )
    little = note_on_ranking(result.design)
    if little is not None:
        found.append(little)
    if _turned_round(result):
        found.append(
            "included canaries score lower than the others. Where a high score speaks "
            'for "excluded", as a loss does, give minus the scores next time; turning '
            "them round now, after a look, would double the chance of being wrong"
        )
    return found


def note_on_ranking(design: "Design") -> str | None:
    """Say that a ranking will show little, where delta is large for its canaries."""
    product = design.canaries * design.bound_delta
    if not design.rules.ordered or product <= _LARGE_PRODUCT:
        return None
    return (
        f"canaries times delta is {product:.3g}: so much delta leaves little to a "
        "ranking, and a number of guesses fixed before the run (--guesses) shows more"
    )


def note_on_strength(design: "Design") -> str | None:
    """Say that a design cannot refute its claim, if not even all right guesses do."""
    n, rules = design.canaries, design.rules
    perfect = rules.count(rules.cuts(n), canaries=n)
    test = test_claim(design.claim, perfect, alpha=design.alpha, bound=rules.bound())
    if test.refuted:
        return None
    return (
        f"this design cannot refute its claim: even with every guess right p would be "
        f"{test.p_value:.2g}, above alpha = {design.alpha:g}. Use more canaries and "
        "guesses; an audit by it will be inconclusive"
    )


def _turned_round(result: "Result") -> bool:
    """Return whether included canaries score lower by more than chance explains."""
    seen = result.scores
    if seen is None:
        return False
    ones, zeros = sum(seen.included), sum(seen.excluded)
    if not ones or not zeros:
        return False
    area = float(np.trapezoid(seen.true_positive, seen.false_positive))
    # The area under the ROC curve of scores that say nothing (Mann and Whitney).
    return area < 0.5 - _FAR * sqrt((ones + zeros + 1) / (12 * ones * zeros))


# What printing says


def sentence(result: "Result") -> str:
    """Return what a result says of itself: a sentence, or some lines of a training."""
    void, training = result.verdict is Verdict.VOID, result.training
    if training is None:
        said = opening(result.verdict, result.reason)
        return said if void else f"{said} {details(result)}"
    lines = [*head(result)]
    if not void:
        lines += [_accountant(result), details(result), _family(training)]
        lines += [_why_not_higher(result)]
    lines += [
        f"Looked at: {on_one_line(each.said)}."
        for each in result.controls
        if each.said not in result.reason
    ]
    lines += [f"Note: {on_one_line(remark)}." for remark in training.remarks]
    lines += [
        f"{capital(look.road)}, {looked(look.how, result.verdict)}: "
        f"{on_one_line(look.said)}."
        for look in training.ledger.looks
    ]
    return "\n".join(line for line in lines if line)


# The first lines about a training, in every format


def head(result: "Result", caught: str | None = None) -> tuple[str, ...]:
    """Return what is said first of a training, in lines; none of anything else.

    The word, with what it is worth; each fault, or what else is behind a refutation;
    the roads that nobody looked at; those that were looked at, by how.

    Args:
        result: Of any audit.
        caught: What would have been caught, as a sentence, where more is known than
            the result says.
    """
    if result.training is None:
        return ()
    word, ledger = result.verdict, result.training.ledger
    faults, said = list(result.faults), opening(word, result.reason)
    if word is Verdict.FAULT_FOUND:
        said = opening(word, str(faults.pop(0)))
    elif word is Verdict.REFUTED:
        said += f" {_refutation(result)}"
    elif word is Verdict.NO_VIOLATION_FOUND:
        said += f" {caught or _worth(result)}"
    lines = [said, *(f"Fault found: {on_one_line(str(each))}." for each in faults)]
    if word is Verdict.REFUTED and not result.faults:
        lines.append(_suspected(result))
    return *lines, *roads(ledger, word)


def roads(ledger: Ledger, verdict: Verdict) -> Iterator[str]:
    """Say what was not looked at, and what was and how, in a line each."""
    for how in (How.NOT_LOOKED_AT, How.AUDITED, How.PROBED):
        found = ledger.roads(how)
        if found:
            yield f"{capital(looked(how, verdict))}: {', '.join(found)}."


def looked(how: How, verdict: Verdict) -> str:
    """Return how a road was looked at: canaries of a void run audited nothing."""
    if verdict is Verdict.VOID and how is How.AUDITED:
        return "audited in vain"
    return str(how)


def _refutation(result: "Result") -> str:
    """Return what was found beside what was claimed."""
    test, found = result.claim_test, result.bound
    claimed, p = test.claim.epsilon_at(found.delta), p_value_text(test.p_value)
    if result.is_own_bound or found.epsilon_lower <= claimed:
        return f"The claim {claim_words(test.claim, found.delta)} fails (p {p})."
    at = f"at delta = {found.delta:g}; p {p}" if found.delta else f"p {p}"
    least = rounded_down(found.epsilon_lower)
    return f"Epsilon is at least {least}, where {claimed:.4g} is claimed ({at})."


def _suspected(result: "Result") -> str:
    """Return the likeliest cause of a refutation where no fault was found."""
    assert result.training is not None
    arrival, ledger = result.training.arrival, result.training.ledger
    if arrival is not None and arrival.off:
        cause = "canaries are lost on the way, or sums are scaled"
        if arrival.slope > 1:
            cause = "records are not clipped, or are scaled once they are"
        return f"Likely cause: {cause}; {arrival}."
    unseen = ledger.roads(How.NOT_LOOKED_AT)
    said = f"Likely cause: {Road.ACCOUNTING.faults}"
    if Road.INDEPENDENCE in unseen:  # the noise was not read
        said = f"Likely cause: {Road.NOISE.faults}; {Road.ACCOUNTING.faults}"
    if not unseen:
        return f"{said}; no fault was found on any road."
    return f"{said}; or a fault on a road that was not looked at."


def _worth(result: "Result") -> str:
    """Return what a training's audit would have caught, or why that is not known."""
    about, training = result.design.about, result.training
    assert training is not None
    if training.hidden:
        why = f"real gradients hid {1 - training.trusted:.0%} of the evidence"
    elif about.fault is None:
        why = "no plan forecast it"
    elif about.steps not in (None, training.steps):
        why = f"{about.steps} steps were planned, and {training.steps} seen"
    else:
        return f"{noise_caught(about.fault)}."
    return f"Which noise it would have caught is not known: {why}."


def capital(text: str) -> str:
    """Return a text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def details(result: "Result") -> str:
    """Return what was shown of the design's claim, in one sentence."""
    right, made = result.reading.right_and_made()
    said = (
        f"{result.design_test}: {result.bound}, from {right} of {made} guesses right "
        f"about {result.design.canaries} canaries ({_most(result)} "
        f"{result.ceiling:.3g}{_caught(result)}), against {result.design.threat_model}"
        f"{_limits(result)}."
    )
    return said[0].upper() + said[1:]


def _most(result: "Result") -> str:
    """Say what the ceiling is the ceiling of."""
    if result.reading.tally:
        return "all right would have shown"
    return "no audit with so many guesses shows more than"


def _caught(result: "Result") -> str:
    """Say what would have been caught, where nothing was."""
    if result.design_test.refuted or result.reading.counted is None:
        return ""
    if result.accuracy_caught is None:
        return ", too little to refute the claim"
    return (
        f"; {ceil(1000 * result.accuracy_caught) / 10:g} % right would have refuted "
        f"the claim with chance {CHANCE:g}"
    )


def _limits(result: "Result") -> str:
    """Say what the audit did not run through, and what nobody can check."""
    missed = "; not exercised: " + on_one_line(", ".join(result.not_exercised))
    uncommitted = "" if result.commitment else "; the coins were not committed"
    said = result.not_exercised and not result.training  # there the ledger says it
    return (missed if said else "") + uncommitted


def _accountant(result: "Result") -> str:
    if result.training is None or result.training.accountant is None:
        return ""
    test, delta = result.training.accountant, result.design.bound_delta
    said = str(test).replace(
        str(test.claim),
        f"of the accountant (a whole curve: epsilon = "
        f"{test.claim.epsilon_at(delta):.3f} at delta = {delta:g})",
    )
    return f"{said[0].upper()}{said[1:]} at alpha = {test.alpha:g}."


def _family(training: "TrainingRecord") -> str:
    family = training.family
    return "" if family is None else f"By the Gaussian family: {family}."


def _why_not_higher(result: "Result") -> str:
    """Say what keeps the bound from being higher, and what would be caught."""
    design = result.design
    right = f"its bound if every guess were right is {result.ceiling:.3f}"
    if result.refuted:
        return f"Why not higher: {right}."
    reach = mechanism_ceiling(
        result.claim_test.claim, delta=design.bound_delta, alpha=design.alpha
    )
    return (
        "Why not higher: of a training that just keeps the claim, no one-run audit "
        f"with alpha = {design.alpha:g} reliably shows more than epsilon = "
        f"{reach:.3f}; {right}{_forecast(result)}."
    )


def _forecast(result: "Result") -> str:
    """Say what the plan expected, if there was one and the run was as planned."""
    about, training, said = result.design.about, result.training, ""
    if training is not None and training.hidden:
        hidden = f"{1 - training.trusted:.0%}"
        return (
            f". Real gradients in the canaries' coordinates hid {hidden} of the "
            "evidence, so that the plan's forecast does not hold: larger faults "
            "than it says may go unseen"
        )
    if about.expected_epsilon is None and about.fault is None:
        return ""
    if training is not None and about.steps not in (None, training.steps):
        return (
            f". The plan was for {about.steps} steps and {training.steps} were seen, "
            "so that its forecast does not hold"
        )
    if about.expected_epsilon is not None:
        said += f"; the plan expected {rounded_down(about.expected_epsilon)}"
    if about.fault is not None and result.verdict is not Verdict.NO_VIOLATION_FOUND:
        said += f". {noise_caught(about.fault)}"  # else it stands in the first line
    return said


def noise_caught(fault: float) -> str:
    """Return which noise would have been caught; no full stop.

    Example:
        >>> noise_caught(1.731)
        'It would have caught noise 1.74 times too small with chance 0.9'
    """
    smallest = ceil(100 * fault) / 100
    return (
        f"It would have caught noise {smallest:.2f} times too small with chance "
        f"{CHANCE:g}"
    )


# What explanations, reports and model cards say of the claim


def verdict(result: "Result") -> str:
    """Return the word, why it is no answer, and what was shown of the claim."""
    return f"{opening(result.verdict, result.reason)} {shown(result)}".strip()


def shown(result: "Result") -> str:
    """Return what was shown of the claim; "" of a void audit, which shows nothing.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> print(shown(judge(counts, design=design, commitment=None)))
        The claim epsilon = 1 is refuted against an observer of the output: epsilon is \
at least 1.630 (alpha = 0.05, method exact, tier A: any mechanism; p = 2.8e-05).
    """
    if result.verdict is Verdict.VOID:
        return ""
    test, found, who = result.claim_test, result.bound, result.design.threat_model
    claim = claim_words(test.claim, found.delta)
    at = f" at delta = {found.delta:g}" if found.delta else ""
    least = f"epsilon is at least {rounded_down(found.epsilon_lower)}{at}"
    p = f"p {p_value_text(test.p_value)}"
    if result.is_own_bound:
        how = "refuted" if test.refuted else "not refuted, which does not prove it,"
        said = (
            f"The claim {claim} is {how} against {who} ({p}). The method "
            f"{found.method} says of itself that {least} (alpha = {found.alpha:g}); "
            "dpaudit does not have it, and does not say so: "
            f"{on_one_line(found.reference)}."
        )
        return said + _other_test(result)
    least += (
        f" (alpha = {found.alpha:g}, method {found.method}, tier {found.tier}: any "
        f"mechanism; {p})"
    )
    if not test.refuted:
        said = (
            f"The claim {claim} is not refuted against {who}, which does not prove it: "
            f"all that was shown is that {least}."
        )
    else:
        said = f"The claim {claim} is refuted against {who}: {least}."
        if found.epsilon_lower < test.claim.epsilon_at(found.delta):
            said += (
                " The claim is tested by itself; a bound must hold against every "
                "smaller epsilon too, and is lower."
            )
    return said + _other_test(result)


def _other_test(result: "Result") -> str:
    """Return the verdict on the design's claim where it is another one."""
    test, own = result.claim_test, result.design_test
    if own is test or own.refuted == test.refuted:
        return ""
    claim = claim_words(own.claim, result.design.bound_delta)
    how = "is refuted" if own.refuted else "is not refuted"
    return (
        f" The claim that the design names, {claim}, {how} "
        f"(p {p_value_text(own.p_value)})."
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One row: a name, what it is, and a word on it."""

    name: str
    value: str
    note: str = ""

    @property
    def whole(self) -> str:
        """Value and note in one."""
        return f"{self.value}, {self.note}" if self.note else self.value


def facts(result: "Result") -> tuple[Fact, ...]:
    """Return what a result says in rows, what the verdict turns on first.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> for fact in facts(judge(counts, design=design, commitment=None))[:3]:
        ...     print(f"{fact.name}: {fact.value}")
        Claimed: epsilon = 1
        Found, at least: epsilon >= 1.630
        p-value of the claim: p = 2.8e-05
    """
    right, made = result.reading.right_and_made()
    share = f" ({right / made:.1%})" if made else ""
    void = result.verdict is Verdict.VOID
    return (
        _claimed(result),
        *(() if void else _about_the_claim(result)),
        Fact(
            name="Right guesses",
            value=f"{right:,} of {made:,}{share}",
            note=f"about {result.design.canaries:,} canaries",
        ),
        Fact(name="Threat model", value=str(result.design.threat_model)),
        *_of_training(result, void=void),
    )


def _claimed(result: "Result") -> Fact:
    test, delta = result.claim_test, result.bound.delta
    curve, whose = "", "a whole curve"
    if result.training is not None and result.training.accountant is not None:
        whose = "the accountant's whole curve"
    if not isinstance(test.claim, PureDP | ApproxDP):
        curve = f"{whose} is tested; "
    return Fact(
        name="Claimed",
        value=f"epsilon = {test.claim.epsilon_at(delta):.4g}",
        note=f"at delta = {delta:g}; {curve}{test.claim.adjacency} adjacency",
    )


def _about_the_claim(result: "Result") -> tuple[Fact, ...]:
    bound, test = result.bound, result.claim_test
    who = (
        "only its author says that it holds"
        if result.is_own_bound
        else (f"tier {bound.tier}: any mechanism")
    )
    return (
        Fact(
            name="Found, at least",
            value=f"epsilon >= {rounded_down(bound.epsilon_lower)}",
            note=f"at delta = {bound.delta:g}, wrong with chance at most alpha = "
            f"{bound.alpha:g}; method {bound.method}, {who}",
        ),
        Fact(
            name="p-value of the claim",
            value=f"p {p_value_text(test.p_value)}",
            note=f"at {test.alpha:g} or less a claim counts as refuted",
        ),
        Fact(
            name="Most it could have shown",
            value=f"epsilon >= {rounded_down(result.ceiling)}",
            note="if every guess had been right"
            if result.reading.tally
            else "no audit with so many guesses shows more",
        ),
    )


def _of_training(result: "Result", *, void: bool) -> Iterator[Fact]:
    training = result.training
    if training is None:
        return
    yield from ledger_facts(result)
    yield Fact(
        name="Training",
        value=f"{training.steps:,} steps seen",
        note=f"real gradients left {training.trusted:.0%} of the evidence, as far as "
        "sums tell",
    )
    family = training.family
    if family is not None and not void:
        yield Fact(
            name="If the mechanism is Gaussian",
            value=f"{family.parameter} >= {rounded_down(family.parameter_lower)}",
            note=f"tier {family.tier}: {family.family} only, in which epsilon >= "
            f"{rounded_down(family.model_epsilon)} at delta = {family.delta:g}; "
            f"alpha = {family.alpha:g}, method {family.method}",
        )


def ledger_facts(result: "Result") -> Iterator[Fact]:
    """Return the ledger in rows: faults, then roads; nothing without a training."""
    if result.training is None:
        return
    for fault in result.faults:
        yield Fact(name="Fault found", value=fault.said, note=_why(fault))
    for look in result.training.ledger.looks:
        how = looked(look.how, result.verdict)
        yield Fact(name=capital(look.road), value=how, note=look.said)


def _why(fault: Fault) -> str:
    chance = f"; by chance at most {fault.chance:.1g}" if fault.chance else ""
    return (
        f"{fault.measured}, where {fault.claimed} is claimed; likely {fault.cause}"
        f"{chance}"
    )


# In a notebook: a small piece of HTML in the notebook's own colours, so that light and
# dark work alike. It loads nothing, and every text in it is escaped.

_BOX = (
    "border-left:4px solid {colour};padding:2px 0 2px 14px;margin:4px 0;max-width:46em"
)
_TABLE = "border-collapse:collapse;margin:0;color:inherit;font-size:inherit"
_CELL = "text-align:left;padding:3px 14px 3px 0;vertical-align:top"
_COLOURS: Final = {  # all stand out on white and on black
    Verdict.VOID: "#808080",
    Verdict.REFUTED: "#d1495b",
    Verdict.FAULT_FOUND: "#d9662b",
    Verdict.INCONCLUSIVE: "#c28e0e",
    Verdict.NO_VIOLATION_FOUND: "#3d85c6",
}


def html(result: "Result") -> str:
    """Return what a notebook shows of a result: the word first, then rows.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> result = judge(counts, design=design, commitment=None)
        >>> "<strong>Refuted</strong>." in html(result)
        True
    """
    said, *more = head(result) or (opening(result.verdict, result.reason),)
    word = len(result.verdict)
    rows = [(each.name, each.whole) for each in facts(result)]
    rows += [("Looked at", each.said) for each in result.controls]
    box = _BOX.format(colour=_COLOURS[result.verdict])
    return (
        f'<div style="{box}"><p style="margin:0 0 6px">'
        f"<strong>{escape(said[:word])}</strong>{escape(said[word:])}"
        f"{''.join(f'<br>{escape(line)}' for line in more)}</p>"
        f'<table style="{_TABLE}"><tbody>'
        + "".join(_row(name, value) for name, value in rows)
        + "</tbody></table></div>"
    )


def _row(name: str, value: str) -> str:
    return (
        f'<tr style="background:none"><th scope="row" style="{_CELL};'
        f'font-weight:normal;opacity:.75">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
    )
