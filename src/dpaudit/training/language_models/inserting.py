"""Add canaries to a data set in the form that trainers take: dicts of token lists."""

from typing import Any, cast

from torch.utils.data import ConcatDataset, Dataset

from dpaudit.errors import InvalidInputError
from dpaudit.training.black_box.canaries import Record, size

__all__ = ["insert", "rows"]


def rows(records: Dataset[Record]) -> list[dict[str, list[int]]]:
    """Return records in the form that the trainers of transformers and TRL take.

    ``labels`` mark which tokens are learned. TRL prepares a data set before it trains,
    and drops records that teach nothing: pass
    ``dataset_kwargs={"skip_prepare_dataset": True}``, or blank fillers are lost.

    Args:
        records: Pairs (ids, labels), such as ``audit.included()``.

    Example:
        >>> from dpaudit.training.language_models import new_tokens
        >>> rows(new_tokens([901], before=[5]))
        [{'input_ids': [5, 901], 'attention_mask': [1, 1], 'labels': [-100, 901]}]
    """
    dicts = []
    for index in range(size("records", records)):
        ids, labels = records[index]
        dicts.append(
            {
                "input_ids": ids.tolist(),
                "attention_mask": [1] * len(ids),
                "labels": labels.tolist(),
            }
        )
    return dicts


def insert(dataset: Any, records: Dataset[Record]) -> Any:  # noqa: ANN401
    """Return a data set with canaries appended.

    Args:
        dataset: Of Hugging Face's ``datasets``, with the column ``input_ids``; or of
            torch, whose records are pairs (ids, labels).
        records: ``audit.included()``. With fillers its length does not depend on coins.
    """
    columns = getattr(dataset, "column_names", None)
    if columns is None:
        return ConcatDataset([dataset, records])
    if not {"input_ids", "labels"} <= {*columns}:
        raise InvalidInputError(
            "canaries are tokens with labels, so the data set must have the columns "
            f"input_ids and labels, got {columns}; call the tokenizer on it first, and "
            "let labels be the tokens that are to be learned, and -100 elsewhere"
        )
    from datasets import Dataset as Table  # noqa: PLC0415 (here if it was given)
    from datasets import concatenate_datasets  # noqa: PLC0415

    wanted = [
        {name: row[name] for name in columns if name in row} for row in rows(records)
    ]
    missing = sorted(set(columns) - {*wanted[0]})
    if missing:
        raise InvalidInputError(
            f"canaries have no {', '.join(missing)}; leave out of the data set what "
            "training does not use: dataset.select_columns([...])"
        )
    table = Table.from_list(wanted, features=cast("Any", dataset).features)
    return concatenate_datasets([dataset, table])
