"""How often whole audits are wrong, from coins to verdict.

    python benchmarks/whole_audits.py --store whole.sqlite --workers 2   # run or resume
    python benchmarks/whole_audits.py --audits 200                       # a quick look

Every auditor, guesser and mechanism of ``dpaudit.experiments.whole_audits``, 100
canaries, alpha 0.05, 20,000 audits each. Prints the table, worst first, in Markdown.
Exits with 1 if a row fails: if its lower limit (99.9 %, Bonferroni) exceeds alpha.
"""

import argparse
import sys
from pathlib import Path

from sweeping import filled

from dpaudit.experiments.whole_audits import Row, cases, sweep, table


def show(rows: list[Row]) -> None:
    print("| auditor | guesser | mechanism | true | wrong of audits | rate | limits |")
    print("|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: -row.low):
        truth = f"({row.claim.epsilon:.4g}, {row.claim.delta:.2g})"
        print(
            f"| {row.auditor} | {row.guesser} | {row.mechanism} | {truth} | "
            f"{row.wrong} of {row.audits} | {row.wrong / row.audits:.4f} | "
            f"[{row.low:.4f}, {row.high:.4f}]{' FAILS' if row.fails else ''} |"
        )
    failing = sum(row.fails for row in rows)
    print(f"\n{len(rows)} rows, {failing} fail.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audits", type=int, default=20_000)
    parser.add_argument("--store", type=Path, default=Path("whole_audits.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="guessers of such a name")
    args = parser.parse_args()
    chosen = [case for case in cases() if args.only in case["guesser"]]
    planned = sweep(chosen, audits=args.audits)
    with filled(planned, args.store, workers=args.workers, doing="auditing") as store:
        rows = table(chosen, store, audits=args.audits)
    show(rows)
    sys.exit(any(row.fails for row in rows))


if __name__ == "__main__":
    main()
