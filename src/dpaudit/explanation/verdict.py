"""The verdict of an audit: the word first, then what was shown, and to whom."""

from dpaudit.bounds.bound import p_value_text, rounded_down
from dpaudit.errors import on_one_line
from dpaudit.evidence.documents import Result, audit_of
from dpaudit.game.result import is_own_bound, opening
from dpaudit.game.verdict import Verdict
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.privacy.guarantees import ApproxDP, PureDP

__all__ = ["claim_words", "shown", "verdict"]


def verdict(result: Result) -> str:
    """Return the verdict in sentences: the word, why it is no answer, what was shown.

    Example:
        >>> from dpaudit import Counts, Design, OneRun, PureDP
        >>> from dpaudit.game.result import judge
        >>> design = Design(
        ...     canaries=100, rules=OneRun(guesses=100), claim=PureDP(epsilon=1.0)
        ... )
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> print(verdict(judge(counts, design=design, commitment=None)))
        Refuted. The claim epsilon = 1 is refuted against an observer of the output: \
epsilon is at least 1.630 (alpha = 0.05, method exact, tier A: any mechanism; \
p = 2.8e-05).
    """
    return f"{opening(result.verdict, result.reason)} {shown(result)}".strip()


def shown(result: Result) -> str:
    """Return what was shown of the claim; "" of a void audit, which shows nothing."""
    if result.verdict is Verdict.VOID:
        return ""
    audit, test = audit_of(result), result.claim_test
    found = audit.bound
    who = audit.design.threat_model
    claim = claim_words(test.claim, found.delta)
    at = f" at delta = {found.delta:g}" if found.delta else ""
    least = (
        f"epsilon is at least {rounded_down(found.epsilon_lower)}{at} (alpha = "
        f"{found.alpha:g}, method {found.method}, tier {found.tier}: any mechanism; "
        f"p {p_value_text(test.p_value)})"
    )
    if is_own_bound(audit):
        return _of_own_bound(result)
    if test.refuted:
        said = f"The claim {claim} is refuted against {who}: {least}."
        if found.epsilon_lower < test.claim.epsilon_at(found.delta):
            said += (
                " The claim is tested by itself; a bound must hold against every "
                "smaller epsilon too, and is lower."
            )
    else:
        said = (
            f"The claim {claim} is not refuted against {who}, which does not prove it: "
            f"all that was shown is that {least}."
        )
    return said + _other_verdict(result)


def _of_own_bound(result: Result) -> str:
    """Return what is known of a claim, and who says the bound."""
    audit, test = audit_of(result), result.claim_test
    found = audit.bound
    at = f" at delta = {found.delta:g}" if found.delta else ""
    how = "is refuted" if test.refuted else "is not refuted, which does not prove it,"
    return (
        f"The claim {claim_words(test.claim, found.delta)} {how} against "
        f"{audit.design.threat_model} (p {p_value_text(test.p_value)}). The method "
        f"{found.method} says of itself that epsilon is at least "
        f"{rounded_down(found.epsilon_lower)}{at} (alpha = {found.alpha:g}); dpaudit "
        f"does not have it, and does not say so: {on_one_line(found.reference)}."
        + _other_verdict(result)
    )


def _other_verdict(result: Result) -> str:
    """Return the verdict on the design's claim where it is another one."""
    audit, test = audit_of(result), result.claim_test
    own = audit.claim_test
    if own is test or own.refuted == test.refuted:
        return ""
    claim = claim_words(own.claim, audit.design.bound_delta)
    how = "is refuted" if own.refuted else "is not refuted"
    return (
        f" The claim that the design names, {claim}, {how} "
        f"(p {p_value_text(own.p_value)})."
    )


def claim_words(claim: Guarantee, delta: float) -> str:
    """Return a claim as words: its epsilon at delta, and whether it says more."""
    epsilon = f"epsilon = {claim.epsilon_at(delta):.4g}"
    if delta:
        epsilon += f" at delta = {delta:g}"
    if isinstance(claim, ApproxDP | PureDP):
        return epsilon
    return f"{epsilon} (a whole curve)"
