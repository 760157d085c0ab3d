"""Bugs in the accounting: the training is right, but not what is said about it."""

from typing import Any

from dpaudit_lab.bugzoo.honest import Run

__all__ = ["account_for_more_records", "lose_accountant_on_resume"]


def account_for_more_records(run: Run, *, times: int = 5) -> None:
    """Tell the accountant of a sample rate from a data set that much larger."""
    accountant: Any = run.engine.accountant
    run.optimizer.attach_step_hook(
        accountant.get_optimizer_hook_fn(sample_rate=run.setting.rate / times)
    )


def lose_accountant_on_resume(run: Run, *, counted: int = 4) -> None:
    """Begin the accountant's history anew when so many steps are left.

    A checkpoint held model and optimizer, but not the accountant.
    """
    accountant: Any = run.engine.accountant
    count = run.optimizer.step_hook
    left = run.setting.steps

    def count_since_resume(optimizer: Any) -> None:  # noqa: ANN401 (Opacus is untyped)
        nonlocal left
        if left == counted:
            accountant.history = []
        left -= 1
        count(optimizer)

    run.optimizer.attach_step_hook(count_since_resume)
