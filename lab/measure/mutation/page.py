"""Write down what was tried, what survived, and why; and what it comes to on a page.

    python lab/measure/mutation/page.py docs/developer/checks.md

The counts and the survivors come from what `run.py` has kept; the reasons from
`reasons.toml`, where a rule names functions (``where``, a pattern like
``stats/search.*``) and, if need be, the change (``change``, a regular expression that
must be found in "before => after"). The first rule that fits gives the reason. Modules
and survivors are written to ``lab/results/mutation.json``, packages and kinds of
reasons between the markers of the page, whose rest is kept as it stands. What is known
of each mutant is written to `tried.txt`. Exits with 1 if a survivor has no reason.
"""

import argparse
import fnmatch
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from mutants import Mutant, mutants
from mutation_results import OPEN, RESULTS, as_text, by_package, reasons
from run import HERE, TRIED, WORK, counts, known, modules, name_of

COUNTS = ["mutants", "tried", "killed", "timeout", "survived", "wording"]
_TOKEN = re.compile(r"\w+|\s+|.")


def reason(rules: list[dict], name: str, mutant: Mutant) -> str:
    """Return why a mutant survives."""
    change = f"{mutant.before} => {mutant.after}"
    for rule in rules:
        if fnmatch.fnmatchcase(f"{name}.{mutant.function}", rule["where"]) and (
            re.search(rule.get("change", ""), change)
        ):
            return rule["why"]
    if mutant.wording:
        return "the wording of a message"
    return OPEN


def change(mutant: Mutant) -> tuple[str, str]:
    """Return what was changed, without what stayed on either side."""
    old, new = _TOKEN.findall(mutant.before), _TOKEN.findall(mutant.after)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    most = min(len(old), len(new)) - start
    while end < most and old[-1 - end] == new[-1 - end]:
        end += 1
    around = 2  # tokens of context, so that one sees where it is
    first, last = max(0, start - 2 * around), end - min(end, 2 * around)
    before = "".join(old[first : len(old) - last]).strip()
    after = "".join(new[first : len(new) - last]).strip()
    return _short(before), _short(after)


def _short(text: str) -> str:
    one = " ".join(text.split()).replace("`", "'")
    return (one if len(one) <= 60 else one[:57] + "...") or " "


def listed(path: Path, rules: list[dict]) -> list[dict]:
    """Return the survivors of a module, a row for each function and reason."""
    rows, (_, found) = known(path), mutants(path, WORK)
    groups = defaultdict(list)
    for one in found:
        if rows.get(one.key, {}).get("status") == "survived":
            groups[one.function, reason(rules, name_of(path), one)].append(change(one))
    return [
        {
            "module": name_of(path),
            "function": function,
            "mutants": len(changes),
            "changes": [] if "wording" in why else list(dict.fromkeys(changes)),
            "why": why,
        }
        for (function, why), changes in groups.items()
    ]


def counted(path: Path) -> dict:
    """Return the counts of a module."""
    row = counts(path)
    return {
        "module": name_of(path),
        **{name: row[name] for name in (*COUNTS, "wording survived")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    page = parser.parse_args().page
    rules = tomllib.loads((HERE / "reasons.toml").read_text())["rule"]
    paths = modules([])
    tested = [row for row in map(counted, paths) if row["tried"]]
    survivors = [row for path in paths for row in listed(path, rules)]
    RESULTS.write_text(as_text({"modules": tested, "survivors": survivors}))
    text = page.read_text()
    parts = {"table": by_package(tested), "survivors": reasons(survivors)}
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{part}\n{end}{tail}"
    page.write_text(text)
    tried = {
        one.key: rows[one.key]["status"]
        for path in paths
        for rows in [known(path)]
        for one in mutants(path, WORK)[1]
        if one.key in rows
    }
    TRIED.write_text("".join(f"{key} {tried[key]}\n" for key in sorted(tried)))
    unknown = sum(row["mutants"] for row in survivors if row["why"] == OPEN)
    if unknown:
        sys.exit(f"{unknown} survivors without a reason")


if __name__ == "__main__":
    main()
