"""A result in words, at one place: the first lines, how sure they are, facts in rows.

Every format begins with ``head``, whose first line is the verdict: the word, what it is
worth, what nobody looked at. Below it printing, ``dpaudit audit`` and notebooks have
``facts``; explanations, reports and model cards also say ``numbers`` and ``shown`` in
sentences. There is one verdict; other claims and families are rows. Nothing that says
something about the claim is said of a void audit. Lower bounds are rounded down and
p-values up.

Elsewhere are the words of a test and of a bound by themselves (``bounds/bound``), of
what guesses would have had to do (``game/strength``), of several runs together
(``game/combining``), of ``dpaudit bound``, which has no result (``cli/bound``), and of
what was derived again (``evidence/derivation``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from math import ceil, sqrt
from textwrap import fill
from typing import TYPE_CHECKING, Final, final

import numpy as np

from dpaudit.bounds.bound import ClaimTest, LowerBound, rounded_down
from dpaudit.bounds.methods import test_claim
from dpaudit.bounds.power import mechanism_ceiling
from dpaudit.errors import on_one_line
from dpaudit.game.configuration import Detectable
from dpaudit.game.ledger import Fault, How, Ledger, Road
from dpaudit.game.setting import Unit
from dpaudit.game.verdict import CHANCE, Verdict
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP

if TYPE_CHECKING:
    from dpaudit.game.design import Design
    from dpaudit.game.result import Result

__all__ = [
    "Fact",
    "beside",
    "capital",
    "claim_words",
    "facts",
    "head",
    "html",
    "ledger_facts",
    "looked",
    "noise_detected",
    "note_on_ranking",
    "note_on_strength",
    "notes",
    "numbers",
    "of_unit",
    "opening",
    "roads",
    "sentence",
    "shown",
    "surety",
    "verdict",
]

# What looks the same from inside a run, be it right or wrong.
# docs/explanation/tiers-and-threat-models.md says what would see it.
_NEVER_SEEN: Final = (
    "what is done to the data before the loader (copies, scaling by statistics of all "
    "records), several records of one person, choices made by looking at the data, "
    "what is logged, another model being released"
)
_OF_USERS: Final = (
    ("several records of one person", "several accounts of one person"),
    ("before the loader", "on a user's device"),
    ("per-record gradients", "per-user updates"),
    ("Per-record gradients", "Per-user updates"),
    ("over micro-batches and ranks", "over clients"),
    ("sees the model at every step", "sees the aggregate of every round"),
    ("record", "user"),
    ("steps seen", "rounds seen"),
)
_UNPROVED: Final = "So what was proved of the claim does not apply to this run."
_WIDTH, _NAMES = 88, 22  # of a row in a terminal, and of its name
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
    """Return what a result says of itself: its first lines, then rows."""
    return "\n".join([*head(result), *(_line(*row) for row in _rows(result))])


def _rows(result: "Result") -> Iterator[tuple[str, str]]:
    """Return the rows below the first lines, in a terminal and in a notebook."""
    void = result.verdict is Verdict.VOID
    for each in ledger_facts(result) if void else facts(result):
        yield each.name, each.whole
    for control in result.controls:
        if control.said not in result.reason:
            yield "Looked at", control.said


def _line(name: str, text: str) -> str:
    """Return a row of a table for terminals, its text beside the name."""
    beside = f"  {name:<{_NAMES}}  "
    above = f"  {name}\n" if len(name) > _NAMES else ""
    return above + fill(
        on_one_line(text),
        width=_WIDTH,
        initial_indent=" " * (_NAMES + 4) if above else beside,
        subsequent_indent=" " * (_NAMES + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


# The first lines, in every format


def head(result: "Result", caught: str = "") -> tuple[str, ...]:
    """Return what is said first of an audit, in lines.

    In one line the word, what it is worth, and what nobody looked at. Below it, of a
    training, each fault, or what else is behind a refutation, and what was noticed;
    then the roads that were looked at, by how.

    Args:
        result: Of any audit.
        caught: What would have been caught, as a sentence, where more is known than
            the result says.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> print(*head(judge(counts, design=design, commitment=None)))
        Refuted. Epsilon is at least 1.630, where 1 is claimed.
    """
    word, faults = result.verdict, list(result.faults)
    said = opening(word, result.reason)
    if word is Verdict.FAULT_FOUND:
        said = f"{opening(word, str(faults.pop(0)))} {_UNPROVED}"
    elif word is Verdict.REFUTED:
        said += f" {numbers(result)}"
    elif word is Verdict.NO_VIOLATION_FOUND:
        said += f" {caught or _worth(result)}"
    lines = [f"{said}{_unseen(result)}"]
    lines += [f"Fault found: {on_one_line(str(each))}." for each in faults]
    training = result.training
    if training is not None:
        if word is Verdict.REFUTED and not result.faults:
            lines.append(_suspected(result))
        lines += [f"Noticed: {on_one_line(each)}." for each in training.remarks]
        lines += roads(training.ledger, word)
    return tuple(of_unit(result.design.setting.unit, line) for line in lines)


def of_unit(unit: str | None, said: str) -> str:
    """Say of users what is said of records, where privacy is claimed for users.

    Example:
        >>> of_unit("user", "one record more or less")
        'one user more or less'
    """
    if unit != Unit.USER:
        return said
    for of_records, of_users in _OF_USERS:
        said = said.replace(of_records, of_users)
    return said


def _fact_of_unit(result: "Result", fact: "Fact") -> "Fact":
    unit = result.design.setting.unit
    return Fact(
        name=of_unit(unit, fact.name),
        value=of_unit(unit, fact.value),
        note=of_unit(unit, fact.note),
    )


def _unseen(result: "Result") -> str:
    """Name what was not looked at, in a sentence, if it is known."""
    found: Iterable[str] = result.not_exercised
    accepted = ""
    if result.training is not None:
        found = result.training.ledger.roads(How.NOT_LOOKED_AT)
        accepted = ", ".join(result.training.ledger.roads(How.ACCEPTED))
    said = on_one_line(", ".join(found))
    return (f" Not looked at: {said}." if said else "") + (
        f" {capital(How.ACCEPTED)}: {accepted}." if accepted else ""
    )


def roads(
    ledger: Ledger, verdict: Verdict, ways: Iterable[How] = (How.AUDITED, How.PROBED)
) -> Iterator[str]:
    """Say what was looked at, in a line for each of some ways."""
    for how in ways:
        found = ledger.roads(how)
        if found:
            yield f"{capital(looked(how, verdict))}: {', '.join(found)}."


def looked(how: How, verdict: Verdict) -> str:
    """Return how a road was looked at: canaries of a void run audited nothing."""
    if verdict is Verdict.VOID and how is How.AUDITED:
        return "audited in vain"
    return str(how)


def numbers(result: "Result") -> str:
    """Return what was found beside what is claimed; "" of a void audit.

    Of a bound that this package does not have nothing is said in its own voice.
    """
    if result.verdict is Verdict.VOID:
        return ""
    test, own = result.claim_test, result.is_own_bound
    alone = bool(result.faults) and not test.refuted
    said = beside(test, result.bound, alone=alone, silent=own)
    claimed = test.claim.epsilon_at(result.bound.delta)
    if own or not test.refuted or result.bound.epsilon_lower >= claimed:
        return said
    return f"{said} {_refuted_where(result)}"


def _refuted_where(result: "Result") -> str:
    """Say at which delta a claim is refuted, if not where the bound is stated."""
    point = result.refuted_at
    if point is None:
        return (
            "None of its pairs of epsilon and delta is refuted by itself: all of them "
            "together are."
        )
    claim, found = point
    return (
        f"At delta = {claim.delta:.3g} epsilon is at least {found.shown}, where "
        f"{claim.epsilon:.4g} is claimed."
    )


def beside(
    test: ClaimTest, found: LowerBound, *, alone: bool = False, silent: bool = False
) -> str:
    """Return a bound beside the claim, in a sentence.

    Args:
        test: Of the claim.
        found: The bound.
        alone: Whether faults were found, which guesses did not show.
        silent: Whether nothing is to be said of the bound.
    """
    claimed = test.claim.epsilon_at(found.delta)
    if silent or (test.refuted and found.epsilon_lower <= claimed):
        how = "is refuted" if test.refuted else "is not refuted, nor proved"
        return f"The claim {claim_words(test.claim, found.delta)} {how}."
    who = "From the guesses alone epsilon" if alone else "Epsilon"
    least = f"{who} is at least {found.shown}"
    if test.refuted:
        return f"{least}, where {claimed:.4g} is claimed."
    return (
        f"{least} and may be anything above, which does not prove the {claimed:.4g} "
        "that is claimed."
    )


def _suspected(result: "Result") -> str:
    """Return the likeliest cause of a refutation where no fault was found."""
    assert result.training is not None
    arrival, ledger = result.training.arrival, result.training.ledger
    if arrival is not None and arrival.off:
        cause = "canaries are lost on the way, or sums are scaled"
        if arrival.slope > 1:
            cause = "records are not clipped, or are scaled once they are"
        return f"Likely cause: {cause}; {arrival}."
    unseen = (*ledger.roads(How.NOT_LOOKED_AT), *ledger.roads(How.ACCEPTED))
    said = f"Likely cause: {Road.ACCOUNTING.faults}"
    if Road.INDEPENDENCE in unseen:  # the noise was not read
        said = f"Likely cause: {Road.NOISE.faults}; {Road.ACCOUNTING.faults}"
    if not unseen:
        return f"{said}; no fault was found on any road."
    return f"{said}; or a fault on a road that was not looked at."


def _worth(result: "Result") -> str:
    """Return what would have been caught; what was found, if that is not known."""
    training = result.training
    if training is None:
        return f"{numbers(result)}{_accuracy(result)}"
    return f"{noise_detected(training.detectable)}."


def _accuracy(result: "Result") -> str:
    if result.accuracy_caught is None:
        return ""
    return (
        f" Guesses right {ceil(1000 * result.accuracy_caught) / 10:g} % of the time "
        f"would have refuted the claim with chance {CHANCE:g}."
    )


def _not_as_planned(result: "Result") -> str:
    """Return why what a plan forecast does not hold; "" if it does."""
    planned, training = result.design.setting.steps, result.training
    assert training is not None
    if training.hidden:
        return f"real gradients hid {1 - training.trusted:.0%} of the evidence"
    if planned not in (None, training.steps):
        return f"{planned} steps were planned, and {training.steps} seen"
    return ""


def capital(text: str) -> str:
    """Return a text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def noise_detected(found: Detectable | None) -> str:
    """Return which fault of the noise would have been detected; no full stop.

    Example:
        >>> noise_detected(Detectable(factor=1.731))
        'It would have caught noise 1.74 times too small with chance 0.9'
        >>> noise_detected(Detectable(factor=None, why_not="no step was made"))
        'Which noise it would have caught is not known: no step was made'
    """
    if found is None:
        found = Detectable(factor=None, why_not="the record does not say")
    if found.why_not:
        return f"Which noise it would have caught is not known: {found.why_not}"
    if found.factor is None:
        return (
            "It would hardly have caught a fault of the noise: not even noise 32 times "
            f"too small would have been refuted with chance {CHANCE:g}"
        )
    smallest = ceil(100 * found.factor) / 100
    return (
        f"It would have caught noise {smallest:.2f} times too small with chance "
        f"{CHANCE:g}"
    )


# What is said below the first lines


def verdict(result: "Result") -> str:
    """Return the word, why it is no answer, and what was shown of the claim."""
    said = (opening(result.verdict, result.reason), numbers(result), shown(result))
    return " ".join(filter(None, said))


def shown(result: "Result") -> str:
    """Return how sure ``numbers`` are, and against whom; "" of a void audit.

    Example:
        >>> from dpaudit import Design, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> print(shown(judge(counts, design=design, commitment=None)))
        Shown against somebody who sees the output (p = 2.8e-05); the bound is wrong \
with chance at most 0.05, whatever the program does (method exact, tier A).
    """
    if result.verdict is Verdict.VOID:
        return ""
    test, found = result.claim_test, result.bound
    at = f"at delta = {found.delta:g} " if found.delta else ""
    who = f"Shown {at}against {result.design.threat_model.plain}"
    p = f"p {test.p_text}"
    least = found.shown
    if result.is_own_bound:
        said = (
            f"{who} ({p}). The method {found.method} says of itself that epsilon is "
            f"at least {least} (alpha = {found.alpha:g}); dpaudit does not have it, "
            f"and does not say so: {on_one_line(found.reference)}."
        )
    else:
        said = f"{who} ({p}); the bound is {surety(found)}."
    return said + _other_test(result)


def _other_test(result: "Result") -> str:
    """Return how the plan's claim fared, where it fared otherwise."""
    test, own = result.claim_test, result.design_test
    if own is test or own.refuted == test.refuted:
        return ""
    claim = claim_words(own.claim, result.design.bound_delta)
    how = "is refuted" if own.refuted else "is not refuted"
    return (
        f" By itself the claim that the design names, {claim}, {how} (p {own.p_text})."
    )


def surety(found: LowerBound) -> str:
    """Return how sure a bound is, and by which method."""
    return f"{found.sure} (method {found.method}, tier {found.tier})"


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
        return f"{self.value}: {self.note}" if self.note else self.value


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
        Claimed: epsilon = 1 at delta = 0
        Shown: epsilon >= 1.630 at delta = 0
        p-value: p = 2.8e-05
    """
    return tuple(_fact_of_unit(result, fact) for fact in _facts(result))


def _facts(result: "Result") -> tuple[Fact, ...]:
    right, made = result.reading.right_and_made()
    share = f" ({right / made:.1%})" if made else ""
    void = result.verdict is Verdict.VOID
    return (
        _claimed(result),
        *(() if void else _about_the_claim(result)),
        Fact(
            name="Right guesses",
            value=f"{right:,} of {made:,}{share}",
            note=f"with {result.design.canaries:,} canaries in all",
        ),
        *(() if void else _most(result)),
        Fact(name="Watching", value=result.design.threat_model.plain),
        _coins(result),
        *_of_training(result, void=void),
    )


def _claimed(result: "Result") -> Fact:
    test, delta = result.claim_test, result.bound.delta
    curve = ""
    if result.training is not None and result.training.accountant is not None:
        curve = (
            "; what the accountant proves of the steps taken, and every other pair of "
            f"epsilon and delta that it promises is tested too. {_reported(result)}"
        )
    elif not isinstance(test.claim, PureDP | ApproxDP):
        curve = "; every pair of epsilon and delta that it promises is tested"
    return Fact(
        name="Claimed",
        value=f"epsilon = {test.claim.epsilon_at(delta):.4g} at delta = {delta:g}",
        note=f"{test.claim.adjacency.plain}{curve}",
    )


def _reported(result: "Result") -> str:
    """Say which number the framework itself reports, if it is another."""
    assert result.training is not None
    reported, delta = result.training.reported, result.bound.delta
    if reported is None:
        return "What a framework prints can be a little more, as it rounds up"
    proved = f"{result.claim_test.claim.epsilon_at(delta):.3g}"
    who = on_one_line(result.design.setting.framework or "the framework")
    if f"{reported:.3g}" == proved:
        return f"{capital(who)} reports the same"
    return (
        f"{capital(who)} reports {reported:.3g}; the steps it was told about prove "
        f"{proved}"
    )


def _about_the_claim(result: "Result") -> Iterator[Fact]:
    bound, test = result.bound, result.claim_test
    sure = surety(bound)
    if result.is_own_bound:
        sure = (
            f"wrong with chance at most {bound.alpha:g}, as only the author of the "
            f"method {bound.method} says"
        )
    yield Fact(
        name="Shown",
        value=f"epsilon >= {bound.shown} at delta = {bound.delta:g}",
        note=sure,
    )
    weak = "" if test.refuted else "no evidence against the claim, and none for it: "
    yield Fact(
        name="p-value",
        value=f"p {test.p_text}",
        note=f"{weak}at most the chance of so many right guesses if the claim is true; "
        f"{test.alpha:g} or less refutes it",
    )
    own = result.design_test
    if own is not test:
        how = "refuted" if own.refuted else "not refuted"
        yield Fact(
            name="Claim of the plan",
            value=str(own.claim),
            note=f"named in the design; by itself {how} (p {own.p_text})",
        )


def _most(result: "Result") -> Iterator[Fact]:
    """Say what the audit could have shown, had it been luckier or larger."""
    note, little = "what this audit would have shown", "too little to refute the claim"
    if result.reading.adaptive and not result.reading.tally:
        note, little = (
            "no audit with so many guesses shows more",
            f"as played, {little}",
        )
    if not result.could_refute:
        note = f"{note}; {little}"
    yield Fact(
        name="With all guesses right",
        value=f"epsilon >= {result.bound.rounded(result.ceiling)}",
        note=note,
    )
    if result.refuted or result.training is None:
        return
    design, planned = result.design, result.design.setting.expected_epsilon
    reach = mechanism_ceiling(
        result.claim_test.claim, delta=design.bound_delta, alpha=design.alpha
    )
    plan = ""
    if planned is not None:
        why = _not_as_planned(result)
        plan = f"; the plan expected {rounded_down(planned)}"
        if why:
            plan = f"; what the plan expected does not hold: {why}"
    yield Fact(
        name="Any audit, reliably",
        value=f"epsilon >= {rounded_down(reach)}",
        note="what one run reliably shows of a training that just keeps its claim"
        f"{plan}",
    )


def _coins(result: "Result") -> Fact:
    value = "not committed, so that nobody can check that they came first"
    if result.commitment is not None:
        value = "derived from a committed key; evidence lets others check it"
    return Fact(name="Coins", value=value)


def _of_training(result: "Result", *, void: bool) -> Iterator[Fact]:
    training = result.training
    if training is None:
        return
    yield from _ledger_facts(result)
    if schedule := result.design.setting.schedule:
        when, noise = schedule
        yield Fact(name="Who joins when", value=when, note=noise)
    yield Fact(
        name="Training",
        value=f"{training.steps:,} steps seen",
        note=f"real records hid {1 - training.trusted:.0%} of what canaries show, as "
        "far as sums tell",
    )
    family = training.family
    if family is not None and not void:
        yield Fact(
            name="If noise is Gaussian",
            value=f"epsilon >= {rounded_down(family.model_epsilon)} at delta = "
            f"{family.delta:g}",
            note=f"which is assumed, not shown; {family.parameter} >= "
            f"{rounded_down(family.parameter_lower)} in {family.family}, wrong "
            f"with chance at most {family.alpha:g} (method {family.method}, tier "
            f"{family.tier})",
        )


def ledger_facts(result: "Result") -> Iterator[Fact]:
    """Return the ledger in rows: faults, then roads; nothing without a training."""
    for fact in _ledger_facts(result):
        yield _fact_of_unit(result, fact)


def _ledger_facts(result: "Result") -> Iterator[Fact]:
    if result.training is None:
        return
    for fault in result.faults:
        yield Fact(name="Fault found", value=fault.said, note=_why(fault))
    for look in result.training.ledger.looks:
        how = looked(look.how, result.verdict)
        yield Fact(name=capital(look.road), value=how, note=look.said)
    yield Fact(name="Never seen from inside", value=_NEVER_SEEN)


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
    said, *more = head(result)
    word = len(result.verdict)
    box = _BOX.format(colour=_COLOURS[result.verdict])
    return (
        f'<div style="{box}"><p style="margin:0 0 6px">'
        f"<strong>{escape(said[:word])}</strong>{escape(said[word:])}"
        f"{''.join(f'<br>{escape(line)}' for line in more)}</p>"
        f'<table style="{_TABLE}"><tbody>'
        + "".join(_row(name, value) for name, value in _rows(result))
        + "</tbody></table></div>"
    )


def _row(name: str, value: str) -> str:
    return (
        f'<tr style="background:none"><th scope="row" style="{_CELL};'
        f'font-weight:normal;opacity:.75">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
    )
