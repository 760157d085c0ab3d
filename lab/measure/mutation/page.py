"""Write the page on mutation testing: what was tried, what survived, and why.

    python lab/measure/mutation/page.py docs/developer/mutation.md

The counts and the survivors come from what `run.py` has kept; the reasons from
`reasons.toml`, where a rule names functions (``where``, a pattern like
``stats/search.*``) and, if need be, the change (``change``, a regular expression that
must be found in "before => after"). The first rule that fits gives the reason. The
rest of the page is kept as it stands. What is known of each mutant is written to
`tried.txt`. Exits with 1 if a survivor has no reason.
"""

import argparse
import fnmatch
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from mutants import Mutant, mutants
from run import HERE, TRIED, WORK, known, modules, table

UNKNOWN = "open"
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
    return UNKNOWN


def change(mutant: Mutant) -> str:
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
    return f"`{_short(before)}` → `{_short(after)}`"


def _short(text: str) -> str:
    one = " ".join(text.split()).replace("`", "'")
    return (one if len(one) <= 60 else one[:57] + "...") or " "


def listed(path: Path, rules: list[dict]) -> tuple[str, int]:
    """Return the survivors of a module, grouped, and how many have no reason."""
    rows, (_, found) = known(path), mutants(path, WORK)
    name = "/".join(path.with_suffix("").parts[2:])
    groups, unknown = defaultdict(list), 0
    for one in found:
        if rows.get(one.key, {}).get("status") == "survived":
            why = reason(rules, name, one)
            unknown += why == UNKNOWN
            groups[one.function, why].append(change(one))
    if not groups:
        return "", 0
    lines = [f"### {name}", ""]
    for (function, why), changes in groups.items():
        what = "; ".join(dict.fromkeys(changes)) if "wording" not in why else ""
        many = f"({len(changes)})" if len(changes) > 1 else ""
        head = " ".join(filter(None, [f"`{function}`", many, what]))
        lines.append(f"- {head}: {why}.")
    return "\n".join(lines), unknown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    page = parser.parse_args().page
    rules = tomllib.loads((HERE / "reasons.toml").read_text())["rule"]
    paths = modules([])
    parts = {"table": table(paths)}
    found = [listed(path, rules) for path in paths]
    parts["survivors"] = "\n\n".join(text for text, _ in found if text)
    text = page.read_text()
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
    unknown = sum(many for _, many in found)
    if unknown:
        sys.exit(f"{unknown} survivors without a reason")


if __name__ == "__main__":
    main()
