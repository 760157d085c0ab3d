"""The report's tables: the numbers of the verdict, the design, versions, references."""

import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from platform import python_version
from typing import final

from dpaudit._codec import encode
from dpaudit.explanation.ladder import reach
from dpaudit.game.findings import Finding, Status
from dpaudit.game.text.findings import sentence
from dpaudit.game.text.results import Fact, coverage_facts, facts
from dpaudit.game.verdict import Verdict
from dpaudit.reporting.numbers import count, plain, scientific
from dpaudit.reporting.report.subject import Subject

_KEY_FACTS = 3  # facts that the verdict depends on

__all__ = [
    "Fact",
    "Reference",
    "design_facts",
    "key_facts",
    "more_facts",
    "object_facts",
    "references",
    "sanity_facts",
    "setting_facts",
    "stage_facts",
    "versions",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Something to cite."""

    what_for: str
    text: str
    link: str = ""


def object_facts(subject: Subject, auditor: str) -> tuple[Fact, ...]:
    """Return the framework, the digest of the weights, and who ran the audit."""
    result, rows = subject.result, []
    if framework := result.design.setting.framework:
        rows.append(Fact(name="Trained with", value=framework))
    if digest := result.training and result.training.weights_sha256:
        rows.append(Fact(name="SHA-256 of the weights", value=digest))
    if auditor:
        rows.append(Fact(name="Audited by", value=auditor))
    return tuple(rows)


def key_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return the facts that the verdict depends on: claim, bound, p-value."""
    return facts(subject.result)[:_KEY_FACTS]


def sanity_facts(
    findings: tuple[Finding, ...], unit: str | None = None
) -> tuple[Fact, ...]:
    """Return the sanity checks: whether the canaries had an effect."""
    return tuple(
        Fact(
            name="OK" if each.status is Status.PASSED else str(each.status),
            value=sentence(each, unit),
        )
        for each in findings
    )


def stage_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return faults and stages of a training run; nothing for other audits."""
    return tuple(coverage_facts(subject.result))


def more_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return what to compare the bound with, and what it was computed from."""
    if subject.result.verdict is Verdict.INVALID_RUN:
        return ()
    rest = facts(subject.result)[_KEY_FACTS:]
    most = next(each for each in rest if each.key == "all_right")
    above = {"threat_model", "coins", "ceiling", "coverage", most.key}
    others = [each for each in rest if each.key not in above]
    return (most, _reach(subject), *others)


def design_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return everything that was fixed before the run."""
    design = subject.result.design
    return (
        Fact(name="canaries", value=count(design.canaries)),
        Fact(name="rules", value=_rules(subject)),
        Fact(name="claim", value=str(design.claim)),
        Fact(name="adjacency", value=str(design.claim.adjacency)),
        Fact(name="delta of the bound", value=scientific(design.bound_delta)),
        Fact(name="significance level alpha", value=scientific(design.alpha)),
        Fact(name="threat model", value=str(design.threat_model)),
    )


def setting_facts(subject: Subject) -> tuple[Fact, ...]:
    """Return the setting of the design, which is for the record."""
    setting = subject.result.design.setting
    entries = encode(setting)
    notes, canaries = entries.pop("notes", {}), entries.pop("insertion", {})
    for name in entries.keys() & {"participation", "strategy"}:
        entries[name] = str(getattr(setting, name))
    entries |= {f"canary_{name}": value for name, value in canaries.items()}
    return tuple(
        Fact(
            name=name,
            value=f"{value:.6g}" if isinstance(value, float) else str(value),
        )
        for name, value in [*entries.items(), *notes.items()]
    )


def versions() -> tuple[Fact, ...]:
    """Return the versions of the software that makes the page."""
    names = ["dpaudit", "numpy", "scipy"]
    names += [each for each in ("torch", "opacus", "jax") if each in sys.modules]
    return (
        Fact(name="Python", value=python_version()),
        *(Fact(name=name, value=_version(name)) for name in names),
    )


def references(subject: Subject) -> tuple[Reference, ...]:
    """Return what to cite: the software, and the work that this audit depends on."""
    bound = subject.result.bound
    cited = [
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
    if subject.result.design.runs > 1:
        cited.append(
            Reference(
                what_for="auditing in many runs",
                text="M. Jagielski, J. Ullman and A. Oprea, Auditing Differentially "
                "Private Machine Learning: How Private is Private SGD?, NeurIPS 2020.",
                link="https://arxiv.org/abs/2006.07709",
            )
        )
    else:
        cited.append(
            Reference(
                what_for="auditing in one run",
                text="T. Steinke, M. Nasr and M. Jagielski, Privacy Auditing with One "
                "(1) Training Run, NeurIPS 2023.",
                link="https://arxiv.org/abs/2305.08846",
            )
        )
    return (*cited, *_used(subject))


def _used(subject: Subject) -> tuple[Reference, ...]:
    """Return what else the result was made with, as far as it is known."""
    training, cited = subject.result.training, []
    if training is not None and training.family is not None:
        cited.append(
            Reference(
                what_for="the Gaussian family",
                text="J. Dong, A. Roth and W. J. Su, Gaussian Differential Privacy, "
                "J. R. Stat. Soc. B 84, 2022.",
                link="https://arxiv.org/abs/1905.02383",
            )
        )
    if subject.result.design.setting.framework == "Opacus":
        cited.append(
            Reference(
                what_for="Opacus, which trained the model",
                text="A. Yousefpour et al., Opacus: User-Friendly Differential Privacy "
                "Library in PyTorch, 2021.",
                link="https://arxiv.org/abs/2109.12298",
            )
        )
    return tuple(cited)


def _reach(subject: Subject) -> Fact:
    audit = subject.result
    many = audit.design.runs
    runs = f"{count(many)} runs" if many > 1 else "one run"
    return Fact(
        name="Ceiling for one-run audits" if many == 1 else "Ceiling for audits",
        value=f"epsilon = {plain(reach(subject.result.claim_test.claim, audit))}",
        note=f"no valid audit of {runs} at this significance level reliably shows more "
        "of a mechanism whose claim is just true",
    )


def _rules(subject: Subject) -> str:
    rules = subject.result.design.rules
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
