"""Efficiency against effectiveness: what audits show for as many runs, in one figure.

    python lab/measure/efficiency.py --store efficiency.sqlite     # run or resume

Draws ``efficiency.svg`` and ``.pdf``, with ``.csv`` beside them, into ``--out``, and
prints how many classic runs one run is worth. What is audited and how is in
``dpaudit_lab.paper.efficiency``.
"""

import argparse
from pathlib import Path

from sweeping import filled

from dpaudit._files import write
from dpaudit_lab.paper.efficiency import charts, sweeps, worth
from dpaudit_lab.pictures.chart import csv_text
from dpaudit_lab.pictures.curves import draw_panels
from dpaudit_lab.sweeps.store import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/explanation/figures"))
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    planned = sweeps(args.trials)
    for name, sweep in planned.items():
        with filled(sweep, args.store, workers=args.workers, doing=name):
            pass
    with Store(args.store) as store:
        drawn = charts(store, planned)
    for suffix in (".svg", ".pdf"):
        path = args.out / f"efficiency{suffix}"
        draw_panels(drawn, path, width=7.5)
    texts = [csv_text(chart).partition("\n") for chart in drawn]
    rows = [
        f"{chart.title.partition(',')[0]},{line}"
        for chart, (_, _, text) in zip(drawn, texts, strict=True)
        for line in text.splitlines()
    ]
    head = "mechanism,curve,general guarantee,runs,median,error,repeats"
    write(args.out / "efficiency.csv", "\n".join([head, *rows]) + "\n")
    print("\n".join(worth(drawn)))


if __name__ == "__main__":
    main()
