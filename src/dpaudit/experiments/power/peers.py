"""What jax-privacy shows of the same scores, and how long it takes.

Its one-run bound is Steinke, Nasr and Jagielski's, for guesses "included" above a
threshold only. The default takes the best of all thresholds at a level divided by their
number (Bonferroni); ``Split`` chooses the threshold on one half of the canaries and
bounds on the other. Both are called as its documentation says, with scores of included
and of excluded canaries.

jax-privacy is no dependency of dpaudit: it is imported where it is called, and nothing
here needs it otherwise. Its trials are stored under its version, beside ours.

Reference: jax_privacy.auditing.CanaryScoreAuditor.epsilon_one_run,
https://github.com/google-deepmind/jax_privacy; https://arxiv.org/abs/2305.08846.
"""

from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, final

import numpy as np

from dpaudit.engines.store import Outcome, Setting
from dpaudit.engines.sweep import Sweep
from dpaudit.experiments.power.methods import Method, RankedAll
from dpaudit.experiments.power.task import Draw, Task, draw, draw_number, task_of
from dpaudit.experiments.power.timing import cpu

__all__ = [
    "HOW_TO_GET_IT",
    "MEASURED_VERSION",
    "JaxPrivacyDefault",
    "JaxPrivacySplit",
    "installed_version",
    "peer_bound_sweep",
    "peer_bound_trial",
    "peer_time_sweep",
    "peer_time_trial",
]

HOW_TO_GET_IT: Final = "pip install -r benchmarks/peers-requirements.txt"
MEASURED_VERSION: Final = "2.0.0"  # that of benchmarks/peers-requirements.txt

_REVISION = 1


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
        half = _auditing().Split(seed=drawn.number)
        found = _auditor(drawn).epsilon_one_run(
            drawn.task.alpha, drawn.task.delta, threshold_strategy=half
        )
        return float(found)


def _auditing() -> Any:  # noqa: ANN401 (a module that need not be there)
    return import_module("jax_privacy.auditing")


def _auditor(drawn: Draw) -> Any:  # noqa: ANN401 (of that module)
    included = drawn.bits == 1
    return _auditing().CanaryScoreAuditor(
        drawn.scores[included], drawn.scores[~included]
    )


_PEERS: tuple[Method, ...] = (JaxPrivacyDefault(), JaxPrivacySplit())


def installed_version() -> str | None:
    """Return the version of jax-privacy that is installed, if any is."""
    return version("jax-privacy") if find_spec("jax_privacy") else None


def peer_bound_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Bound by jax-privacy the draw that our methods bound in the trial so numbered."""
    drawn = draw(task_of(setting), draw_number(rng))
    return {method.key: method.epsilon_lower(drawn) for method in _PEERS}


def peer_time_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Time jax-privacy and our ranked bound in turn on one draw, in CPU seconds."""
    drawn = draw(task_of(setting), draw_number(rng))
    _auditing()  # its import is not timed
    return {m.key: cpu(m.epsilon_lower, drawn) for m in (RankedAll(), *_PEERS)}


def peer_bound_sweep(task: Task, *, version: str, trials: int) -> Sweep:
    """Return what bounds that many draws of a task by jax-privacy."""
    return Sweep(
        name="power, bounds with jax-privacy",
        revision=_REVISION,
        function=peer_bound_trial,
        settings=[{**asdict(task), "version": version}],
        trials=trials,
    )


def peer_time_sweep(task: Task, *, version: str, pairs: int) -> Sweep:
    """Return what times jax-privacy beside us on that many draws of a task."""
    return Sweep(
        name="power, times with jax-privacy",
        revision=_REVISION,
        function=peer_time_trial,
        settings=[{**asdict(task), "version": version}],
        trials=pairs,
    )
