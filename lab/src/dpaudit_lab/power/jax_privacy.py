"""What jax-privacy shows of the same scores.

Its one-run bound is Steinke, Nasr and Jagielski's, for guesses "included" above a
threshold only. The default takes the best of all thresholds at a level divided by their
number (Bonferroni); ``Split`` chooses the threshold on one half of the canaries and
bounds on the other. Both are called as its documentation says, with scores of included
and of excluded canaries.

jax-privacy is no dependency of the comparison: it is imported where it is called.

Reference: jax_privacy.auditing.CanaryScoreAuditor.epsilon_one_run,
https://github.com/google-deepmind/jax_privacy; https://arxiv.org/abs/2305.08846.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

from dpaudit_lab.power.task import Draw

__all__ = ["JaxPrivacyDefault", "JaxPrivacySplit", "load"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JaxPrivacyDefault:
    """jax-privacy's one-run bound as it comes: Bonferroni over all thresholds.

    Attributes:
        key: Its name in a store.
    """

    key: str = "jax_privacy"

    def epsilon_lower(self, drawn: Draw) -> float:
        """Return the bound at the task's delta and alpha."""
        auditor = _auditor(drawn)
        return float(auditor.epsilon_one_run(drawn.task.alpha, drawn.task.delta))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JaxPrivacySplit:
    """jax-privacy's one-run bound, its threshold chosen on half of the canaries.

    Attributes:
        key: Its name in a store.
    """

    key: str = "jax_privacy_split"

    def epsilon_lower(self, drawn: Draw) -> float:
        """Return the bound at the task's delta and alpha."""
        half = load().Split(seed=drawn.number)
        found = _auditor(drawn).epsilon_one_run(
            drawn.task.alpha, drawn.task.delta, threshold_strategy=half
        )
        return float(found)


def load() -> Any:  # noqa: ANN401 (a module that need not be there)
    """Return its module."""
    return import_module("jax_privacy.auditing")


def _auditor(drawn: Draw) -> Any:  # noqa: ANN401 (of that module)
    included = drawn.bits == 1
    return load().CanaryScoreAuditor(drawn.scores[included], drawn.scores[~included])
