"""``dpaudit audit``: from a file of scores to a verdict."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, final

import typer

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._inputs import (
    IdOption,
    IncludedOption,
    KeyOption,
    ScoreOption,
    SkipIdsOption,
    design_from_options,
    registered_design,
)
from dpaudit.cli._outputs import (
    NotExercisedOption,
    Output,
    Outputs,
    PicturesOption,
    ReportOption,
    SaveOption,
    VerboseOption,
    end_audit,
)
from dpaudit.cli._shared import (
    IndependentOption,
    JsonOption,
    Observer,
    ObserverOption,
)
from dpaudit.errors import InvalidInputError


def audit(
    scores: Annotated[
        Path | None,
        typer.Argument(
            help="A .parquet, .csv or .npz file with id, score and, without a key, "
            "bit; a directory of such .parquet or .csv files; or a .npz file with "
            "in_scores and out_scores."
        ),
    ] = None,
    included: Annotated[
        Path | None,
        typer.Option("--in", help="Scores of included canaries: .npy, .npz or .csv."),
    ] = None,
    excluded: Annotated[
        Path | None, typer.Option("--out", help="Scores of the others.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Claimed epsilon.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Claimed delta; 0 for pure privacy.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Significance level (maximum false-positive rate); default 0.05."
        ),
    ] = None,
    guesses: Annotated[
        int | None,
        typer.Option(
            help="How many guesses count, fixed before anyone saw a coin; if not "
            "given, guesses are ranked and none has to be fixed."
        ),
    ] = None,
    observer: ObserverOption = None,
    design: Annotated[
        Path | None,
        typer.Option(help="What `dpaudit register` wrote, instead of the claim."),
    ] = None,
    key: KeyOption = None,
    tie_seed: Annotated[
        int | None,
        typer.Option(
            help="Breaks ties at random, by id; a key does so itself. Without both, "
            "ties are broken against the auditor."
        ),
    ] = None,
    id_column: IdOption = None,
    included_column: IncludedOption = None,
    score_column: ScoreOption = None,
    coins_were_independent: IndependentOption = False,
    random_half: Annotated[
        bool,
        typer.Option(
            "--random-half",
            help="State that a uniformly random half of the canaries was included, "
            'instead of a coin for each. Guesses are then all "included": of the '
            "highest half of the scores, or --guesses of them.",
        ),
    ] = False,
    skip_id_checks: SkipIdsOption = False,
    not_exercised: NotExercisedOption = None,
    save: SaveOption = None,
    report: ReportOption = None,
    pictures: PicturesOption = None,
    verbose: VerboseOption = False,
    evidence: Annotated[
        Path | None,
        typer.Option(help="Write what others can check to this .json file."),
        Output(suffixes=(".json",)),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Audit a claim from scores: higher where "included" is more likely.

    The claim is --epsilon and --delta, or that of a --design. The coins are the bits
    of the file, or derived by id from the --key.
    """
    outputs = Outputs(save=save, report=report, evidence=evidence, pictures=pictures)
    outputs.check()
    claim = _Claim(
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        guesses=guesses,
        observer=observer,
        tie_seed=tie_seed,
        random_half=random_half or None,
    )
    _check(claim, design, key)
    columns = lib.ColumnNames(
        id=id_column, included=included_column, score=score_column
    )
    with progress_note("auditing", quiet=scores is not None and scores.is_dir()):
        source = lib.read_scores(scores, included, excluded, columns=columns)
        _check_source(source, evidence=evidence, skip_id_checks=skip_id_checks)
        fixed, secret = _fixed(claim, source.canaries, design, key)
        with _watched(source, check_ids=not skip_id_checks) as watched:
            result = watched.audit(
                fixed,
                secret,
                coins_were_independent=coins_were_independent,
                not_exercised=tuple(not_exercised or ()),
            )
            unseen = watched.unseen(result)
        written = outputs.write(
            result,
            key=secret,
            scores=source if isinstance(source, lib.ScoreTable) else None,
            columns=columns,
            coins_were_independent=coins_were_independent,
        )
    beside = lib.notes(result, unseen, registered=design is not None)
    end_audit(result, beside, written, json=json, verbose=verbose)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """The claim on the command line, where no design is named."""

    epsilon: float | None
    delta: float | None
    alpha: float | None
    guesses: int | None
    observer: Observer | None
    tie_seed: int | None
    random_half: bool | None


def _check(claim: _Claim, design: Path | None, key: Path | None) -> None:
    """Refuse options that do not go together, before a large file is read."""
    if design is not None:
        for field in fields(claim):
            if getattr(claim, field.name) is not None:
                option = field.name.replace("_", "-")
                raise InvalidInputError(
                    f"--{option} is fixed by the design {design}; leave it out"
                )
        return
    if key is not None:
        raise InvalidInputError(
            "--key needs the --design that it was registered with: dpaudit register"
        )
    if claim.epsilon is None or claim.delta is None:
        raise InvalidInputError(
            "an audit tests a claim: give --epsilon and --delta (0 for pure privacy), "
            "or a --design; `dpaudit bound` bounds epsilon without a claim"
        )


def _check_source(
    source: "lib.Scores", *, evidence: Path | None, skip_id_checks: bool
) -> None:
    """Refuse options that do not go with what is read."""
    folder = isinstance(source, lib.ScoreFolder)
    if folder and evidence is not None:
        raise InvalidInputError(
            "--evidence names files that are read as one table. Of a directory of "
            ".parquet files, keep the tallies (dpaudit tally), from which dpaudit "
            "merge gives the result again"
        )
    if skip_id_checks and not folder:
        raise InvalidInputError("--skip-id-checks is for a directory of .parquet files")


@contextmanager
def _watched(source: "lib.Scores", *, check_ids: bool) -> "Iterator[lib.Scores]":
    """Yield scores that, if they are a folder's, show how far they are read."""
    if not isinstance(source, lib.ScoreFolder):
        yield source
        return
    with lib.watched("reading", source.canaries) as progress:
        yield replace(source, check_ids=check_ids, progress=progress)


def _fixed(
    claim: _Claim, canaries: int, design: Path | None, key: Path | None
) -> "tuple[lib.Design, lib.Key | None]":
    """Return what was fixed beforehand, or is declared to have been, and the key."""
    if design is not None:
        return registered_design(design, key)
    assert claim.epsilon is not None  # checked before the scores were read
    assert claim.delta is not None
    if claim.tie_seed is not None:
        _validate.whole_number("--tie-seed", claim.tie_seed)
    fixed = design_from_options(
        canaries=canaries,
        epsilon=claim.epsilon,
        delta=claim.delta,
        alpha=0.05 if claim.alpha is None else claim.alpha,
        guesses=claim.guesses,
        observer=claim.observer or Observer.OUTPUT,
        setting=lib.Setting(tie_seed=claim.tie_seed),
        random_half=bool(claim.random_half),
    )
    return fixed, None
