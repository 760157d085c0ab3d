"""The report's tables: the numbers of the verdict, the design, versions, references."""

import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from platform import python_version
from typing import final

from dpaudit.bounds.bound import p_value_text
from dpaudit.explanation.ladder import reach
from dpaudit.game.verdict import Control
from dpaudit.privacy.guarantees import ApproxDP, PureDP
from dpaudit.reporting.report.numbers import (
    at_least,
    count,
    plain,
    scientific,
)
from dpaudit.reporting.report.subject import Subject

__all__ = [
    "Fact",
    "Reference",
    "control_facts",
    "design_facts",
    "key_facts",
    "more_facts",
    "references",
    "setting_facts",
    "versions",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A name, what it is, and a word on it."""

    name: str
    value: str
    note: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Something to cite."""

    what_for: str
    text: str
    link: str = ""


def key_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return what the verdict turns on: claim, bound, p-value."""
    bound, test = subject.audit.bound, subject.claim_test
    return (
        Fact(
            name="Claimed",
            value=f"epsilon = {plain(subject.claimed)}",
            note=f"at delta = {scientific(subject.delta)}; {_claim(subject)}",
        ),
        Fact(
            name="Found, at least",
            value=f"epsilon ≥ {at_least(bound.epsilon_lower)}",
            note=f"at delta = {scientific(bound.delta)}, wrong with chance at most "
            f"alpha = {scientific(bound.alpha)}; method “{bound.method}”, tier "
            f"{bound.tier}: valid for any mechanism",
        ),
        Fact(
            name="p-value of the claim",
            value=f"p {p_value_text(test.p_value)}",
            note=f"a claim is refuted at alpha = {scientific(test.alpha)} or less",
        ),
    )


def control_facts(controls: tuple[Control, ...]) -> tuple[Fact, ...]:
    """Return what was looked at to see whether there was anything to see."""
    return tuple(
        Fact(
            name="as it should be"
            if control.spoils is None
            else f"makes it {control.spoils}",
            value=control.said,
        )
        for control in controls
    )


def more_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return what the bound is to be compared with, and what it was made from."""
    audit = subject.audit
    right, made = audit.reading.right_and_made()
    share = f" ({right / made:.1%})" if made else ""
    facts = [
        Fact(
            name="Most that this audit could have shown",
            value=f"epsilon ≥ {at_least(audit.ceiling)}",
            note="if every guess had been right"
            if audit.reading.tally
            else "no audit with so many guesses shows more",
        ),
        _reach(subject),
        Fact(
            name="Right guesses",
            value=f"{count(right)} of {count(made)}{share}",
            note=f"about {count(audit.design.canaries)} canaries",
        ),
    ]
    return (*facts, *_training(subject))


def design_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return all that was fixed before the run."""
    design = subject.audit.design
    return (
        Fact(name="canaries", value=count(design.canaries)),
        Fact(name="rules", value=_rules(subject)),
        Fact(name="claim", value=str(design.claim)),
        Fact(name="adjacency", value=str(design.claim.adjacency)),
        Fact(name="delta of the bound", value=scientific(design.bound_delta)),
        Fact(name="alpha, the chance of being wrong", value=scientific(design.alpha)),
        Fact(name="threat model", value=str(design.threat_model)),
    )


def setting_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return what the design holds for the record."""
    return tuple(
        Fact(
            name=name,
            value=f"{value:.6g}" if isinstance(value, float) else str(value),
        )
        for name, value in subject.audit.design.setting.items()
    )


def versions() -> tuple[Fact, ...]:
    """Return the versions at work as the page is made."""
    names = ["dpaudit", "numpy", "scipy"]
    names += [each for each in ("torch", "opacus", "jax") if each in sys.modules]
    return (
        Fact(name="Python", value=python_version()),
        *(Fact(name=name, value=_version(name)) for name in names),
    )


def references(subject: Subject) -> tuple[Reference, ...]:
    """Return what to cite: the software, and what this audit rests on."""
    bound = subject.audit.bound
    found = [
        Reference(
            what_for="this software",
            text="The dpaudit developers, dpaudit: audit differential privacy from one "
            f"run, version {_version('dpaudit')}.",
        ),
        Reference(
            what_for=f"the bound, method “{bound.method}”",
            text=f"Its proof is in dpaudit's documentation: {bound.reference}.",
        ),
        Reference(
            what_for="what one run can show, and why",
            text="A. Keinan, M. Shenfeld and K. Ligett, How Well Can Differential "
            "Privacy Be Audited in One Run?, 2025.",
            link="https://arxiv.org/abs/2503.07199",
        ),
    ]
    if subject.audit.design.runs > 1:
        found.append(
            Reference(
                what_for="auditing in many runs",
                text="M. Jagielski, J. Ullman and A. Oprea, Auditing Differentially "
                "Private Machine Learning: How Private is Private SGD?, NeurIPS 2020.",
                link="https://arxiv.org/abs/2006.07709",
            )
        )
    else:
        found.append(
            Reference(
                what_for="auditing in one run",
                text="T. Steinke, M. Nasr and M. Jagielski, Privacy Auditing with One "
                "(1) Training Run, NeurIPS 2023.",
                link="https://arxiv.org/abs/2305.08846",
            )
        )
    return (*found, *_used(subject))


def _used(subject: Subject) -> tuple[Reference, ...]:
    """Return what else the result was made with, as far as it can be seen."""
    training, found = subject.training, []
    if training is not None and training.family is not None:
        found.append(
            Reference(
                what_for="the Gaussian family",
                text="J. Dong, A. Roth and W. J. Su, Gaussian Differential Privacy, "
                "J. R. Stat. Soc. B 84, 2022.",
                link="https://arxiv.org/abs/1905.02383",
            )
        )
    if subject.audit.design.setting.get("framework") == "Opacus":
        found.append(
            Reference(
                what_for="Opacus, which trained the model",
                text="A. Yousefpour et al., Opacus: User-Friendly Differential Privacy "
                "Library in PyTorch, 2021.",
                link="https://arxiv.org/abs/2109.12298",
            )
        )
    return tuple(found)


def _claim(subject: Subject) -> str:
    claim = subject.claim_test.claim
    if isinstance(claim, PureDP | ApproxDP):
        return f"{claim.adjacency} adjacency"
    whose = (
        "the accountant's whole curve"
        if subject.training is not None and subject.training.accountant is not None
        else f"a whole curve, {claim},"
    )
    return f"{whose} is tested; {claim.adjacency} adjacency"


def _reach(subject: Subject) -> Fact:
    audit = subject.audit
    many = audit.design.runs
    runs = f"{count(many)} runs" if many > 1 else "one run"
    return Fact(
        name="Most that any audit could reliably show of such a claim",
        value=f"epsilon = {plain(reach(subject.claim_test.claim, audit))}",
        note=f"no valid audit of {runs} with this alpha reliably shows more of a "
        "mechanism that just keeps the claim",
    )


def _training(subject: Subject) -> tuple[Fact, ...]:
    training = subject.training
    if training is None:
        return ()
    facts = [
        Fact(
            name="Training",
            value=f"{count(training.steps)} steps seen",
            note=f"real gradients left {training.trusted:.0%} of the evidence, as far "
            "as sums tell",
        )
    ]
    if training.family is not None:
        family = training.family
        facts.append(
            Fact(
                name="If the mechanism is Gaussian",
                value=f"{family.parameter} ≥ {at_least(family.parameter_lower)}",
                note=f"tier {family.tier}: holds for the family “{family.family}” "
                f"only, in which epsilon ≥ {at_least(family.model_epsilon)} at delta = "
                f"{scientific(family.delta)}; alpha = {scientific(family.alpha)}, "
                f"method “{family.method}”",
            )
        )
    return tuple(facts)


def _rules(subject: Subject) -> str:
    rules = subject.audit.design.rules
    parts = [f"{name} = {_short(value)}" for name, value in asdict(rules).items()]
    return f"{type(rules).__name__}: {', '.join(parts)}"


def _short(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 6:
        first = ", ".join(f"{each:g}" for each in value[:3])
        return f"({first}, … {len(value)} in all)"
    if isinstance(value, tuple):
        return f"({', '.join(f'{each:g}' for each in value)})"
    return "none" if value is None else f"{value}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
