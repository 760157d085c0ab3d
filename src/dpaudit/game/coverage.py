"""Which pipeline stages of a training run were checked, and how.

A record reaches a model in more ways than through the noise. It is sampled, its
gradient is computed, clipped and added up, noise is added, steps are accounted for; and
some paths lead around all of that, such as a buffer that no noise ever touched. An
audit that checks one stage says nothing about the others. So the result of a training
audit holds its coverage: each stage was *tested with canaries* or *inspected*, with
what was measured, or it was *not checked*, with what would check it.

No claim can do without four of them: batch sampling, per-example gradients, clipping,
and *interference*: that what comes after the noise depends on records through the noisy
sum alone. Where one of these was not checked, for whatever reason, "no violation" would
reassure about something that nobody looked at, so the audit is inconclusive. Whoever
opens it may accept that beforehand, by name; then the coverage says so.

A *fault* is no test of the claim: step 51 repeating the noise of step 1 is a fault
whatever epsilon was claimed. Faults that can appear by chance share one false-positive
rate.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, final

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import (
    FALSE_POSITIVE_RATE,
    Finding,
    Hypothesis,
    Stage,
    Status,
    not_checked,
)

__all__ = ["NEEDED", "Check", "Coverage", "accepted_stages"]

NEEDED: Final = {
    "sampling": Stage.SAMPLING,
    "gradients": Stage.GRADIENTS,
    "clipping": Stage.CLIPPING,
    "interference": Stage.SIDE_PATHS,
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One stage, and how it was checked.

    Attributes:
        stage: The stage.
        status: Whether and how it was checked.
        findings: What was measured, or what would check it.
    """

    stage: Stage
    status: Status
    findings: tuple[Finding, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """All stages of one training run.

    Attributes:
        checks: One for each stage, in order.
        faults: What was found to be wrong, the least likely by chance first.
        false_positive_rate: The probability that a run without a fault is reported to
            have one.

    Example:
        >>> from dpaudit.game.findings import canary_tested
        >>> coverage = Coverage.of([canary_tested(Stage.NOISE_SCALE, "canaries")])
        >>> [str(stage) for stage in coverage.stages(Status.TESTED)]
        ['noise-scale']
        >>> len(coverage.checks), coverage.checks[0].status.value
        (9, 'not checked')
        >>> [str(check.stage) for check in coverage.missing()]
        ['batch-sampling', 'per-example-gradients', 'clipping', 'side-paths']
        >>> [str(each) for each in coverage.hypotheses().values()][:3]
        ['not checked', 'not checked', 'not checked']
    """

    checks: tuple[Check, ...]
    faults: tuple[Finding, ...] = ()
    false_positive_rate: float = FALSE_POSITIVE_RATE

    def __post_init__(self) -> None:
        if tuple(check.stage for check in self.checks) != tuple(Stage):
            raise InvalidInputError("coverage has one check of each stage, in order")
        if any(each.status is not Status.FAULT for each in self.faults):
            raise InvalidInputError("faults must be findings made by fault(...)")
        _validate.probability("false_positive_rate", self.false_positive_rate)

    @classmethod
    def of(
        cls,
        checks: Iterable[Finding],
        faults: Iterable[Finding] = (),
        *,
        accepted: Collection[Stage] = (),
        otherwise: str = "stage.never_checked",
    ) -> "Coverage":
        """Return the coverage by some findings; at each stage the strongest counts.

        What all of equal or lesser strength say is kept. A stage that nobody checked is
        entered as such.

        Args:
            checks: Findings by ``canary_tested``, ``inspected``, ``not_applicable`` or
                ``not_checked``.
            faults: Findings by ``fault``.
            accepted: Stages that need not be checked, as the user said beforehand.
            otherwise: Code of why a stage without a finding was not checked.
        """
        found = {
            stage: Check(
                stage=stage,
                status=Status.NOT_CHECKED,
                findings=(not_checked(stage, otherwise),),
            )
            for stage in Stage
        }
        for each in checks:
            if each.stage is None or each.status not in _STRENGTH:
                raise InvalidInputError(
                    "coverage is made of findings by canary_tested(...), "
                    "inspected(...), not_applicable(...) or not_checked(...), got "
                    f"{each.code!r}, {each.status}"
                )
            found[each.stage] = _with(found[each.stage], each)
        for stage in accepted:
            if found[stage].status is Status.NOT_CHECKED:
                found[stage] = replace(found[stage], status=Status.ACCEPTED)
        return cls(
            checks=tuple(found.values()),
            faults=tuple(sorted(faults, key=lambda each: each.probability)),
        )

    def missing(self) -> tuple[Check, ...]:
        """Return the stages no claim can do without that were not checked."""
        return tuple(
            check
            for check in self.checks
            if check.stage in NEEDED.values() and check.status is Status.NOT_CHECKED
        )

    def hypotheses(self) -> dict[Hypothesis, Status]:
        """Return what became of each hypothesis of the accountant's theorem.

        It failed if a fault was found at one of its stages, and was not checked if one
        of them was not. Gradient aggregation counts by its faults alone: in a single
        process that clips each batch at once there is nothing to check.
        """
        return {each: self._outcome(each) for each in Hypothesis}

    def _outcome(self, hypothesis: Hypothesis) -> Status:
        if any(
            fault.stage is not None and fault.stage.hypothesis is hypothesis
            for fault in self.faults
        ):
            return Status.FAULT
        found = {
            check.status
            for check in self.checks
            if check.stage.hypothesis is hypothesis
            and check.stage is not Stage.AGGREGATION
        }
        unchecked = (Status.NOT_CHECKED, Status.ACCEPTED)
        return next((each for each in unchecked if each in found), Status.PASSED)

    def stages(self, status: Status) -> tuple[Stage, ...]:
        """Return the stages that were checked in this way."""
        return tuple(check.stage for check in self.checks if check.status is status)


_STRENGTH: Final = (
    Status.TESTED,
    Status.INSPECTED,
    Status.NOT_APPLICABLE,
    Status.NOT_CHECKED,
)


def _with(check: Check, finding: Finding) -> Check:
    """Return a check that also holds what another finding says of its stage."""
    if finding.status is Status.NOT_CHECKED:
        if check.status is not Status.NOT_CHECKED:
            return check
        return replace(check, findings=(finding,))
    if check.status is Status.NOT_CHECKED:
        return replace(check, status=finding.status, findings=(finding,))
    order = _STRENGTH.index
    if order(finding.status) < order(check.status):
        findings = (finding, *check.findings)
        return replace(check, status=finding.status, findings=findings)
    return replace(check, findings=(*check.findings, finding))


def accepted_stages(unchecked: Collection[str]) -> tuple[Stage, ...]:
    """Return the stages that a user does without, from their names.

    Example:
        >>> accepted_stages(("clipping",))
        (<Stage.CLIPPING: 'clipping'>,)
    """
    names = ", ".join(f'"{name}"' for name in NEEDED)
    if isinstance(unchecked, str) or {*unchecked} - {*NEEDED}:
        raise InvalidInputError(
            f"unchecked must hold names among {names}, got unchecked={unchecked!r}"
        )
    return tuple(stage for name, stage in NEEDED.items() if name in unchecked)
