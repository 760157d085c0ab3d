"""Black-box audit of training: canary records in, the final model out.

Each canary is a record. Its secret coin flip decides whether it is in the training set.
Training may be anything; the guesser sees the final model, and scores every canary,
included or not, by its loss. The highest scores are guessed "included" and the lowest
"not", and guesses are matched to coins by the canaries' ids.

**What the claim must cover.** The bound requires the whole procedure from the training
set to the final model to be private with respect to each coin, whatever the others are.
The effect of a coin decides the adjacency.

- *Left out* (no fillers): an excluded canary is absent, a difference of one record:
  add-remove. The number of records is then that of the data plus the number of included
  canaries, so whatever is computed from it depends on the coins: the sampling rate, the
  steps of an epoch, the expected batch size that gradients are divided by, a schedule.
  An accountant's claim is for a given rate and a given number of steps. It covers
  neighbouring data sets that share both, and nothing where one more record changes
  either of them. So fix all of them beforehand from a public number, for instance the
  size of the data plus half of the canaries. Without that, a refutation may be about
  the count, which training did reveal. Nor may the distribution of the output depend on
  the order of the records, because one more record moves all that follow; Poisson
  sampling and shuffling ensure this.
- *Replaced* (with ``fillers``): a filler takes the place of an excluded canary, so no
  count ever depends on a coin: replace-one. An epsilon for add-remove is not one for
  replace-one; an (epsilon, delta) for the first implies
  ``(2 epsilon, (1 + e^epsilon) delta)`` for the second, and no smaller epsilon in
  general.

- *Blank* (fillers that are ``Blank``): a record that teaches nothing, such as a text
  without labels, takes the place of an excluded canary. No count of records depends on
  a coin, and to a sum of clipped gradients the canary is as good as left out:
  add-remove. Training that counts what is learned in a batch and divides by it sees the
  difference; it also does so between real records, which is a fault of its own.

In all cases the procedure includes whatever else reads the training set: features
scaled by its mean, outliers that are dropped, early stopping by its losses.

**What is not detected.** Real records pass through sampling, clipping and noise, so
bugs in any of them can show; but a real record rarely has the worst gradient, and a
final model hides most of what its iterates reveal. The bound from a black-box audit of
correct DP-SGD is therefore far below the accountant's epsilon (Nasr et al.), and not
detecting a violation proves nothing. Where guesses are no better than chance the audit
is inconclusive, unless control records (``Controls``) show that scores can reveal
membership. For more power audit the sums: ``dpaudit.training.opacus``.

Reference: Steinke, Nasr and Jagielski, https://arxiv.org/abs/2305.08846 (one run, many
canaries); Nasr, Song, Thakurta, Papernot and Carlini, https://arxiv.org/abs/2101.04535
(adversaries that see the final model or all iterates).
"""

import hashlib
from dataclasses import replace
from typing import final

import numpy as np
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design, ThreatModel
from dpaudit.game.key_use import judge_once
from dpaudit.game.result import Result
from dpaudit.game.rules import OneRun, Ranking
from dpaudit.game.scores import audit_scores, most_confident_guesses
from dpaudit.game.setting import Setting
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.training.black_box.canaries import Blank, Record, digests, size
from dpaudit.training.black_box.controls import Controls, seen_of_controls
from dpaudit.training.black_box.guesses import CanaryGuess, guesses_of
from dpaudit.training.black_box.scoring import (
    CanaryScores,
    Loss,
    Reference,
    check_blank,
    score_canaries,
)

__all__ = ["BlackBoxAudit"]

_RECORDS = ("canaries_sha256", "fillers_sha256", "controls_sha256", "controls_repeats")
_NOT_EXERCISED = (
    "records that training remembers better than these canaries",
    "models before the final one",
)


@final
class BlackBoxAudit:
    """Audits one training run by its final model.

    A second object with the same canaries, design and key is the same audit, so the
    model may be scored and judged in another process than it was trained in.

    Attributes:
        design: The committed design: the one given, with the threat model of a final
            model and the digests of the canaries (fillers, controls).
        commitment: Publish it before the run.

    Example:
        See ``examples/black_box.py``; around any training::

            canaries = mislabelled(dataset, count=1000, classes=10, seed=0)
            audit = BlackBoxAudit(canaries, design=design, key=Key.generate())
            print(audit.commitment.sha256)
            training_set = ConcatDataset([dataset, audit.included()])
            ...                      # train a model in whatever way
            scores = audit.score(model, loss=nn.functional.cross_entropy)
            print(audit.finish(scores))
    """

    def __init__(
        self,
        canaries: Dataset[Record],
        *,
        design: Design,
        key: Key,
        fillers: Dataset[Record] | None = None,
        controls: Controls | None = None,
    ) -> None:
        """Commit to canaries, design and key.

        Args:
            canaries: Pairs (input, target), public, the same at every reading. None of
                them may be in the data that is always trained on, or an excluded
                canary would be trained on anyway: see ``set_aside``.
            design: Fixed beforehand; its rules are ``OneRun`` or ``Ranking``.
            key: The secret of this run; never use one twice.
            fillers: Replacements for excluded canaries: one record for each, or a
                single one for all; ``Blank`` if it teaches nothing. If left out,
                excluded canaries are not replaced.
            controls: Public records that show whether scores can tell what was trained
                on. Without them, an audit whose guesses are no better than chance is
                inconclusive.
        """
        _check_design(design, size("canaries", canaries), fillers)
        self._canaries, self._fillers, self._key = canaries, fillers, key
        self._controls = controls
        self.design = _completed(design, self._fixed())
        self.commitment = Commitment.to(key, self.design)
        self._judged: tuple[CanaryScores, Result] | None = None

    def included(self) -> Dataset[Record]:
        """Return the records to add to the training set. Secret, as the coins are.

        Without fillers these are the included canaries; their number is secret too.
        With fillers there is a record for each canary, itself or its filler. Controls
        come last, so that they reveal a truncated training set.
        """
        if self._controls is None:
            return self._included()
        return ConcatDataset([self._included(), self._controls.included(self._key)])

    def _included(self) -> Dataset[Record]:
        n = self.design.canaries
        bits = Coins(key=self._key, count=n).bits().astype(bool)
        if self._fillers is None:
            return Subset(self._canaries, np.flatnonzero(bits).tolist())
        fillers = size("fillers", self._fillers)
        places = np.where(bits, fillers + np.arange(n), np.arange(n) % fillers)
        return Subset(ConcatDataset([self._fillers, self._canaries]), places.tolist())

    def score(
        self,
        model: nn.Module,
        *,
        loss: Loss,
        reference: Reference = None,
        batch_size: int = 256,
    ) -> CanaryScores:
        """Score every canary and control by the final model; no coin is used.

        Args:
            model: The final model.
            loss: The loss of an output and a target, as in training.
            reference: A model that never saw the coins, such as the initial one;
                ``OtherLabels``; or None.
            batch_size: How many records the model sees at once.
        """
        now = self._fixed()
        if self.design.setting.with_entries(now) != self.design.setting:
            raise InvalidRunError(
                "the canaries are not those that were committed to: their data set "
                "gives other records than before. Leave out what is random or has "
                "changed; transform the training set instead, canaries and all"
            )
        if isinstance(self._fillers, Blank):
            check_blank(model, self._fillers, loss)
        return score_canaries(
            model,
            self._canaries,
            loss=loss,
            reference=reference,
            commitment=self.commitment,
            batch_size=batch_size,
            controls=self._controls and self._controls.records,
        )

    def finish(self, scores: CanaryScores) -> Result:
        """Match scores to coins by id, guess, and test the claim.

        Ties are broken at random, from the key. An audit is judged once: its alpha
        covers one set of scores.

        Args:
            scores: Of this audit's canaries, each once, in any order.
        """
        self._check(scores)
        if self._judged is not None and self._judged[0] is not scores:
            raise InvalidRunError(
                "this audit has been judged by other scores; a second try with the "
                "same coins would need an alpha of its own. Choose the score before "
                "finish, or train again with a new key"
            )
        if self._judged is None:
            digest = _digest(scores)
            judge_once(self._key, self.commitment, self.design, digest)
            self._judged = scores, self._result(scores)
        return self._judged[1]

    def each(self, scores: CanaryScores) -> tuple[CanaryGuess, ...]:
        """Return the guess about each canary, by id; after ``finish``.

        The rows contain the coins, which are secret until all guesses are made.

        Args:
            scores: Those passed to ``finish``.
        """
        if self._judged is None or self._judged[0] is not scores:
            raise InvalidRunError(
                "rows tell the coins, so they are of scores that were judged: call "
                "finish(scores) first, and pass the same scores here"
            )
        values = scores.values[np.argsort(scores.ids)]
        n = self.design.canaries
        tie_breaking = TieBreaking.of(self.design, self._key)
        assert tie_breaking is not None  # there is a key
        which, guessed = most_confident_guesses(
            values, tie_breaking.at(np.arange(n)), guesses=self.design.guesses
        )
        bits = Coins(key=self._key, count=n).bits().astype(bool)
        return guesses_of(values, bits, which, guessed)

    def _result(self, scores: CanaryScores) -> Result:
        # By id, so that neither rows nor tie-breaking depend on their order.
        order = np.argsort(scores.ids)
        coins = Coins(key=self._key, count=self.design.canaries)
        values = scores.values[order]
        result = audit_scores(
            scores.ids[order],
            coins,
            values,
            design=self.design,
            not_exercised=(*_NOT_EXERCISED, *self._promised()),
        )
        if self._controls is None:
            return result
        (effect,) = result.sanity_checks
        seen, unknown = seen_of_controls(
            effect,
            self._controls,
            scores=scores.controls,
            excluded=values[coins.bits() == 0],
            key=self._key,
        )
        return replace(
            result, sanity_checks=seen, not_exercised=result.not_exercised + unknown
        )

    def _promised(self) -> tuple[str, ...]:
        """Return what the audit assumes about fillers and does not test."""
        if not isinstance(self._fillers, Blank):
            return ()
        return ("whether training on a blank record leaves all others as they are",)

    def _fixed(self) -> Setting:
        """Return the digests of the records, as they are now."""
        controls = self._controls
        if controls is None:
            return digests(self._canaries, self._fillers)
        setting = digests(self._canaries, self._fillers, controls.records)
        return replace(setting, controls_repeats=controls.repeats)

    def _check(self, scores: CanaryScores) -> None:
        if not isinstance(scores, CanaryScores):
            raise InvalidInputError(
                "scores must name the canary and the audit that they are for: what "
                "score() returns, or CanaryScores(ids=..., values=..., "
                f"commitment=audit.commitment); got {type(scores).__name__}"
            )
        if scores.commitment.sha256 != self.commitment.sha256:
            raise InvalidRunError(
                "the scores belong to another audit: they carry commitment "
                f"{scores.commitment.sha256[:12]}..., this is "
                f"{self.commitment.sha256[:12]}..."
            )
        n = self.design.canaries
        unknown = scores.ids[(scores.ids < 0) | (scores.ids >= n)]
        missing = np.setdiff1d(np.arange(n), scores.ids)
        if len(unknown) or len(missing):
            raise InvalidRunError(
                f"every one of {n} canaries needs a score: {len(missing)} ids are "
                f"missing (such as {missing[:3].tolist()}) and {len(unknown)} unknown "
                f"(such as {unknown[:3].tolist()})"
            )
        records = (
            0 if self._controls is None else size("controls", self._controls.records)
        )
        if len(scores.controls) != records:
            raise InvalidRunError(
                f"there are {len(scores.controls)} scores for {records} control "
                "records; each needs one: CanaryScores(..., controls=...)"
            )


def _digest(scores: CanaryScores) -> str:
    """Return a hash of scores, in the order of their ids."""
    values = scores.values[np.argsort(scores.ids)]
    return hashlib.sha256(values.tobytes() + scores.controls.tobytes()).hexdigest()


def _check_design(design: Design, count: int, fillers: Dataset[Record] | None) -> None:
    if count != design.canaries:
        raise InvalidRunError(
            f"there are {count} canaries for design.canaries={design.canaries}; each "
            "needs one coin"
        )
    rules = design.rules
    if not (isinstance(rules, OneRun | Ranking) and rules.fixed):
        raise InvalidRunError(
            "a final model is guessed from all at once: the rules must be "
            "OneRun(guesses=...) or Ranking(guesses=...), got "
            f"{rules!r}"
        )
    played, how = Adjacency.ADD_REMOVE, "left out (no fillers)"
    if isinstance(fillers, Blank):
        how = "blank"
    elif fillers is not None:
        played, how = Adjacency.REPLACE_ONE, "replaced by a filler"
    if design.claim.adjacency is not played:
        raise InvalidRunError(
            f"an excluded canary is {how}, which tests {played} adjacency, but the "
            f"claim {design.claim} is for {design.claim.adjacency}; an epsilon for "
            "one is not one for the other, so claim and game must name the same"
        )


def _completed(design: Design, found: Setting) -> Design:
    """Return the design with its threat model and the digests of the records."""
    for name in _RECORDS:
        stated, value = getattr(design.setting, name), getattr(found, name)
        if None not in (stated, value) and stated != value:
            raise InvalidRunError(
                f"the design was made for other records: {name} is {stated}, but those "
                f"given have {value}"
            )
    for name in ("fillers", "controls"):
        stated = getattr(design.setting, f"{name}_sha256")
        if stated is not None and getattr(found, f"{name}_sha256") is None:
            raise InvalidRunError(f"the design was made with {name}; pass them again")
    return replace(
        design,
        threat_model=ThreatModel.FINAL_MODEL,
        setting=design.setting.with_entries(found),
    )
