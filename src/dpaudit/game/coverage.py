"""Which pipeline stages of a training run were checked, and how.

A record is sampled, its gradient is computed, clipped and aggregated, noise is added,
and the steps are accounted for; and some paths bypass all of that, such as a buffer
that is never noised. An audit that checks one stage shows nothing about the others. So
the result of a training audit contains its coverage: each stage was *tested with
canaries* or *inspected*, with what was measured, or it was *not checked*, with what
would check it.

Four stages are required for any claim: batch sampling, per-example gradients, clipping,
and *interference*: that what comes after the noise depends on records only through the
noisy sum. If one of these was not checked, for whatever reason, "no violation" would
reassure about something that nobody checked, so the audit is inconclusive. The user may
accept that before the run, by name; the coverage then records it.

A *fault* is not a test of the claim: step 51 repeating the noise of step 1 is a fault
whatever epsilon is claimed. Faults that can appear by chance share one false-positive
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
        faults: The faults found, the least likely by chance first.
        false_positive_rate: The probability that a run without a fault is reported as
            faulty.

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
        """Return the coverage by findings; the strongest sets the status of its stage.

        Findings of equal or lesser strength are kept. A stage without findings is
        recorded as not checked.

        Args:
            checks: Findings by ``canary_tested``, ``inspected``, ``not_applicable`` or
                ``not_checked``.
            faults: Findings by ``fault``.
            accepted: Stages that the user accepted as unchecked before the run.
            otherwise: Code of the reason why a stage without a finding was not checked.
        """
        by_stage = {
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
            by_stage[each.stage] = _with(by_stage[each.stage], each)
        for stage in accepted:
            if by_stage[stage].status is Status.NOT_CHECKED:
                by_stage[stage] = replace(by_stage[stage], status=Status.ACCEPTED)
        return cls(
            checks=tuple(by_stage.values()),
            faults=tuple(sorted(faults, key=lambda each: each.probability)),
        )

    def missing(self) -> tuple[Check, ...]:
        """Return the required stages that were not checked."""
        return tuple(
            check
            for check in self.checks
            if check.stage in NEEDED.values() and check.status is Status.NOT_CHECKED
        )

    def hypotheses(self) -> dict[Hypothesis, Status]:
        """Return the status of each hypothesis of the accountant's theorem.

        It failed if a fault was found at one of its stages, and was not checked if one
        of them was not. Gradient aggregation matters only if it has a fault: in a
        single process that clips each batch at once there is nothing to check.
        """
        return {each: self._outcome(each) for each in Hypothesis}

    def _outcome(self, hypothesis: Hypothesis) -> Status:
        if any(
            fault.stage is not None and fault.stage.hypothesis is hypothesis
            for fault in self.faults
        ):
            return Status.FAULT
        statuses = {
            check.status
            for check in self.checks
            if check.stage.hypothesis is hypothesis
            and check.stage is not Stage.AGGREGATION
        }
        unchecked = (Status.NOT_CHECKED, Status.ACCEPTED)
        return next((each for each in unchecked if each in statuses), Status.PASSED)

    def stages(self, status: Status) -> tuple[Stage, ...]:
        """Return the stages with this status."""
        return tuple(check.stage for check in self.checks if check.status is status)


_STRENGTH: Final = (
    Status.TESTED,
    Status.INSPECTED,
    Status.NOT_APPLICABLE,
    Status.NOT_CHECKED,
)


def _with(check: Check, finding: Finding) -> Check:
    """Return a check with another finding about its stage added."""
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
    """Return the stages that a user accepts as unchecked, from their names.

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
