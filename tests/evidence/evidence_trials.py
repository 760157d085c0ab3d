"""Trials by tampering: so many mutants of some evidence, and what became of them.

A mutant is *found out* if verification says that the evidence does not hold, and
*harmless* if it says the same in another spelling. If it leaves something out, so that
a check that was made can no longer be made, verification says so, and the mutant is
*weaker*. What is left was *missed*.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from evidence_mutants import (
    broken_bytes,
    broken_envelope,
    broken_evidence,
    broken_payload,
    broken_registration,
    contents,
    same,
)

from dpaudit.errors import InvalidInputError
from dpaudit.evidence import Registration, Verification, open_envelope, verify
from dpaudit.evidence.signing import PublicKey

__all__ = [
    "SIGNED_WAYS",
    "Trial",
    "registration_trial",
    "signed_trial",
    "unsigned_trial",
]

# What rests on counts that were never checked is tampered with as well.
_verified = partial(verify, accept_unchecked_counts=True)


@dataclass
class Trial:
    """What became of mutants.

    Attributes:
        found: How many were found out.
        harmless: How many say the same in another spelling.
        weaker: How many left less to check.
        missed: The fields, or kinds of damage, of all others.
        by: Which check found how many.
        tried: How many mutants each field had.
        stated: What verification lists as stated of the evidence itself, and which of
            the missed fields it lists of a mutant that has a field more.
    """

    found: int = 0
    harmless: int = 0
    weaker: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    by: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    stated: tuple[str, ...] = ()

    def add(self, other: "Trial") -> None:
        """Count the mutants of another trial too."""
        self.found += other.found
        self.harmless += other.harmless
        self.weaker += other.weaker
        self.missed += other.missed
        self.by += other.by
        self.tried += other.tried

    def unlisted(self) -> list[str]:
        """Return the fields that were missed and that are not listed as stated."""
        return sorted(name for name in self.missed if not _within(name, self.stated))

    def untouched(self) -> list[str]:
        """Return what is listed as stated although no change of it was missed."""
        return [
            name
            for name in self.stated
            if not any(_within(each, (name,)) for each in self.missed)
        ]


def _within(name: str, listed: tuple[str, ...]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in listed)


def _pretty(text, rng):
    return broken_bytes(json.dumps(json.loads(text), indent=2), rng)


SIGNED_WAYS = {
    "a field of the payload": broken_payload,
    "a field of the envelope": broken_envelope,
    "a place of the file": broken_bytes,
    "a place of the file, indented": _pretty,
}


def signed_trial(
    text: str,
    public_key: PublicKey,
    way: str,
    *,
    mutants: int,
    rng: np.random.Generator,
    files: Path | None = None,
) -> Trial:
    """Tamper with signed evidence."""
    original = contents(text)
    trial = Trial()
    for _ in range(mutants):
        broken, what = SIGNED_WAYS[way](text, rng)
        found = _verified(broken, public_key=public_key, files=files)
        trial.tried[what] += 1
        if not found.sound:
            trial.found += 1
            trial.by[first_failure(found)] += 1
        elif contents(broken) == original:
            trial.harmless += 1
        else:
            trial.missed[what] += 1
    return trial


def unsigned_trial(
    text: str,
    *,
    mutants: int,
    rng: np.random.Generator,
    files: Path | None = None,
    within: str = "",
    registration: Registration | None = None,
) -> Trial:
    """Tamper with unsigned evidence, or one field of it, and put its hashes right."""
    original, before = _untouched(text, files, registration)
    trial = Trial(stated=before.stated)
    for _ in range(mutants):
        broken, what = broken_evidence(text, rng, within)
        found = _verified(broken, registration=registration, files=files)
        trial.tried[what] += 1
        if fails(found):
            trial.found += 1
            trial.by[first_failure(found)] += 1
        elif not found.sound:
            trial.weaker += 1  # it says that it could not be checked to the end
        elif same(open_envelope(broken)[0].to_json(), original):
            trial.harmless += 1
        elif established(found) < established(before):
            trial.weaker += 1
        else:
            trial.missed[what] += 1
            if _within(what, found.stated) and not _within(what, trial.stated):
                trial.stated += (what,)
    return trial


@lru_cache(maxsize=4)  # one mutant at a time is tried of the same evidence
def _untouched(
    text: str, files: Path | None, registration: Registration | None
) -> tuple[str, Verification]:
    found = _verified(text, files=files, registration=registration)
    return open_envelope(text)[0].to_json(), found


def registration_trial(
    text: str, *, mutants: int, rng: np.random.Generator, files: Path | None = None
) -> Trial:
    """Tamper with the copy of the registration that evidence is compared with.

    A copy that names no key, or no run, is *weaker*, and verification says so.
    """
    registered = open_envelope(text)[0].registration
    trial = Trial()
    for _ in range(mutants):
        broken, what = broken_registration(registered.to_json(), rng)
        trial.tried[what] += 1
        try:
            given = Registration.from_json(broken)
        except InvalidInputError:
            trial.found += 1
            trial.by["form"] += 1
            continue
        found = _verified(text, registration=given, files=files)
        if fails(found):
            trial.found += 1
            trial.by[first_failure(found)] += 1
        elif given == registered:
            trial.harmless += 1
        elif given.design == registered.design and _names_less(given, registered):
            trial.weaker += 1
        else:
            trial.missed[what] += 1
    return trial


def _names_less(given: Registration, registered: Registration) -> bool:
    held = registered.commitment
    if given.commitment is None or held is None:
        return given.commitment is None
    return (
        given.commitment.run_digest is None and given.commitment.sha256 == held.sha256
    )


def fails(found: Verification) -> bool:
    return any(check.outcome == "fails" for check in found.checks)


def established(found) -> set[str]:
    return {check.name for check in found.checks if check.outcome == "holds"}


def first_failure(found) -> str:
    return next(check.name for check in found.checks if check.outcome == "fails")
