"""``dpaudit merge``: from the tallies of all shards to a verdict."""

from pathlib import Path
from typing import Annotated

import typer

from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._inputs import read_registration
from dpaudit.cli._outputs import (
    NotExercisedOption,
    Outputs,
    ReportOption,
    SaveOption,
    VerboseOption,
    end_audit,
)
from dpaudit.cli._shared import IndependentOption, JsonOption, naming_file, read_text
from dpaudit.errors import InvalidRunError


def merge(
    tallies: Annotated[
        list[Path], typer.Argument(help="What `dpaudit tally` wrote, of every shard.")
    ],
    design: Annotated[
        Path | None,
        typer.Option(help="See that they are of what `dpaudit register` wrote."),
    ] = None,
    coins_were_independent: IndependentOption = False,
    not_exercised: NotExercisedOption = None,
    save: SaveOption = None,
    report: ReportOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Merge the tallies of all shards of an audit, and judge the claim.

    The result is that of one pass over all files, however they were divided and in any
    order. The run is invalid if a shard is missing or given twice.
    """
    outputs = Outputs(save=save, report=report)
    outputs.check()
    with progress_note("merging the tallies"):
        found = [_read(path) for path in tallies]
        _check_registered(found, design)
        result = lib.conclude_scores(
            found,
            coins_were_independent=coins_were_independent,
            not_exercised=tuple(not_exercised or ()),
        )
        written = outputs.write(result)
    unseen = lib.unseen_in_tallies(result, ids_checked=bool(found[0].ids))
    beside = lib.notes(result, unseen, registered=True)
    end_audit(result, beside, written, json=json, verbose=verbose)


def _check_registered(found: "list[lib.ScoreTally]", design: Path | None) -> None:
    """Refuse tallies of another audit than the one that was registered."""
    if design is None:
        return
    registered = read_registration(design)
    for tally in found:
        same = tally.commitment == registered.commitment
        if tally.design != registered.design or not same:
            raise InvalidRunError(
                f"the tallies are not of what {design} registered: its design or its "
                "commitment is another"
            )


def _read(path: Path) -> "lib.ScoreTally":
    text = read_text(path)
    with naming_file(path):
        return lib.tally_from_json(text)
