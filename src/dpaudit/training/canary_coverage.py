"""The pipeline stages that canaries pass, by the point where they are inserted.

A canary that is added to the clipped sum tests what comes after it: the noise. One
whose gradient replaces a record's own is sampled, clipped and added up as well. An
example has a gradient of its own; a text is an example made of tokens; a user
participates in federated rounds. Stages that canaries do not pass are inspected in
another way, or not checked.
"""

from collections.abc import Iterator

from dpaudit.game.findings import Finding, Stage, canary_tested, not_checked

__all__ = ["checks_of_records", "checks_of_sums"]


def checks_of_sums(
    *,
    noise: bool,
    call: str,
    batches: str,
    after: str,
    only_sums: bool = False,
    sampled: bool = True,
) -> Iterator[Finding]:
    """Yield how stages are checked if canaries are added to sums.

    Args:
        noise: Whether the noise itself is recorded.
        call: The call that would record it.
        batches: The call that would test batches.
        after: The call that would check what comes after the noise.
        only_sums: Whether ``call`` works only if canaries are added to sums.
        sampled: Whether records join some steps only, and the claim relies on that.
    """
    if not sampled:
        yield canary_tested(Stage.SAMPLING, "sums.every_step")
    yield not_checked(Stage.SAMPLING, "sums.batches_would", call=batches)
    yield not_checked(Stage.GRADIENTS, "probe.offered")
    yield not_checked(Stage.CLIPPING, "probe.offered")
    yield not_checked(Stage.AGGREGATION, "sums.made_after")
    if not noise:
        code = "call.offered_for_sums" if only_sums else "call.offered"
        yield not_checked(Stage.NOISE_INDEPENDENCE, code, call=call)
    yield not_checked(Stage.SIDE_PATHS, "sums.nothing_else", call=after)


def checks_of_records(
    *, norm: float | None, least: float | None = None
) -> Iterator[Finding]:
    """Yield how stages are checked if canaries are records.

    Args:
        norm: Norm of a canary before clipping, over the clipping norm; None if it is
            not known.
        least: The smallest norm, if they differ.
    """
    yield canary_tested(Stage.SAMPLING, "records.pass")
    yield canary_tested(Stage.AGGREGATION, "records.pass")
    if norm is None:
        yield not_checked(Stage.CLIPPING, "records.norm_unknown")
    elif norm > 1:
        least = norm if least is None else least
        yield canary_tested(
            Stage.CLIPPING, "records.pass_clipping", norm=norm, least=least
        )
    else:
        yield not_checked(Stage.CLIPPING, "records.none_above")
