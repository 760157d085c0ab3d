"""A public bug of DataSynthesizer: noise of its conditional distributions."""

import warnings
from importlib import import_module

from dpaudit_lab.real_bugs.cases import Bug, Case, pure

__all__ = ["BUGS"]


def _counts() -> Case:
    warnings.simplefilter("ignore")
    pd = import_module("pandas")
    bayes = import_module("DataSynthesizer.lib.PrivBayes")
    columns = ["a", "b"]

    def release(rows: list[tuple[int, int]]) -> list[float]:
        table = pd.DataFrame(rows, columns=columns)
        noisy = bayes.get_noisy_distribution_of_attributes(columns, table, 1.0)
        return [round(float(count), 4) for count in noisy["count"]]

    rest = [(1, 1), (0, 0)] * 9
    return Case(
        function=release,
        x=[*rest, (1, 1), (0, 0)],
        y=[*rest, (1, 1), (1, 1)],
        claim=pure(1.0),
    )


BUGS = (
    Bug(
        name="datasynthesizer-34",
        library="DataSynthesizer",
        version="0.1.4",
        url="https://github.com/DataResponsibly/DataSynthesizer/issues/34",
        summary=(
            "Counts get the noise that shares of them need: too little by "
            "the number of rows."
        ),
        fixed="0.1.7",
        disclosed=True,
        requires=("DataSynthesizer==0.1.4",),
        observed=(
            "noise of scale 0.1 where 2 is needed; refuted with 500 calls "
            "in 5.9 s of CPU"
        ),
        make=_counts,
    ),
)
