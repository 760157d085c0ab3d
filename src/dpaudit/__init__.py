"""Audit differential privacy from one run.

Before a run
    ``plan_audit`` recommends a design and forecasts its result; ``register`` commits to
    it.
A run
    ``audit_one_run`` a mechanism in Python, all guesses at once; ``audit_adaptive``
    with coins revealed between guesses; ``audit_classic`` over many runs;
    ``audit_scores`` scores that you have; ``audit_function`` any function;
    ``audit_opacus``, ``OpacusAudit``, ``JaxAudit``, ``FlowerAudit``, ``PflAudit`` and,
    for any loop, ``SumsAudit`` a training run while it runs; ``BlackBoxAudit`` one by
    its final model.
After it
    ``print`` the ``Result``; ``explain`` it, ``report`` it as a page, ``combine_runs``.
For others
    ``evidence_of`` a result, ``seal`` it, ``verify`` what somebody sealed; ``load``
    any of these from its file; ``weights_digest`` names the weights of a model.

A ``Design`` fixes what an audit tests: a claim (``PureDP``, ``ApproxDP``, ...), how
many canaries, and by which rules guesses are made (``OneRun``, ``Ranking``,
``WeightClasses``, ``AdaptiveRounds``, ...). ``Extremes`` and ``MostLikely`` are
guessers. What all of it is made of is in ``dpaudit.bounds`` and ``dpaudit.game``.
"""

from dpaudit import _lazy

_fetch, __dir__, __all__ = _lazy.names_of(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 (slow)

        return version("dpaudit")
    return _fetch(name)
