"""``dpaudit tally``: one pass over some of the scores of a large audit."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dpaudit import _files
from dpaudit.cli import _library as lib
from dpaudit.cli._engines import (
    AddressOption,
    EngineName,
    EngineOption,
    WorkersOption,
    chosen_engine,
)
from dpaudit.cli._inputs import (
    IdOption,
    IncludedOption,
    KeyOption,
    ScoreOption,
    SkipIdsOption,
    registered_design,
)
from dpaudit.cli._outputs import Output
from dpaudit.cli._shared import JsonOption
from dpaudit.errors import InvalidRunError


def tally(
    scores: Annotated[
        list[Path],
        typer.Argument(
            help=".parquet files, or directories of them, with id, score and, without "
            "a key, bit."
        ),
    ],
    design: Annotated[Path, typer.Option(help="What `dpaudit register` wrote.")],
    save: Annotated[
        Path,
        typer.Option(help="Write the tally to this .json file."),
        Output(suffixes=(".json",)),
    ],
    key: KeyOption = None,
    id_column: IdOption = None,
    included_column: IncludedOption = None,
    score_column: ScoreOption = None,
    skip_id_checks: SkipIdsOption = False,
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    workers: WorkersOption = None,
    json: JsonOption = False,
) -> None:
    """Tally some of the scores of an audit, so that tallies can be merged.

    Each shard of a large table is tallied where it is stored; `dpaudit merge` computes
    the result from all tallies. Files are read one by one, or by several workers with
    --workers or --engine ray.
    """
    fixed, secret = registered_design(design, key)
    source = lib.read_folder(
        scores,
        check_ids=not skip_id_checks,
        columns=lib.ColumnNames(
            id=id_column, included=included_column, score=score_column
        ),
    )
    with lib.watched("reading", source.canaries) as progress:
        if engine is EngineName.LOCAL and workers in (None, 1) and address is None:
            found = replace(source, progress=progress).tally(fixed, secret)
        else:
            found = lib.tally_files(
                source.files,
                design=fixed,
                engine=chosen_engine(engine, address=address, workers=workers),
                key_file=key,
                check_ids=source.check_ids,
                columns=source.columns,
                progress=progress,
            )
            _check_key(found, secret)
    text = lib.tally_to_json(found)
    _files.write(save, text + "\n")
    summary = (
        f"{found.rows:,} of {fixed.canaries:,} canaries, {found.ones:,} of them "
        f"included: {save}"
    )
    typer.echo(text if json else summary)


def _check_key(found: "lib.ScoreTally", key: "lib.Key | None") -> None:
    """Refuse coins of another key, that workers found under the same name."""
    if found.commitment is not None and (
        key is None or not found.commitment.holds_for(key, found.design)
    ):
        raise InvalidRunError(
            "the workers read another key: the file that --key names must be the same "
            "on every machine"
        )
