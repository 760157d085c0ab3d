"""Tasks and trials for the tests, where worker processes can import them."""

import os
import signal
import time


def draw(setting, rng):
    time.sleep(setting.get("seconds", 0.0))
    return {"x": float(rng.normal(setting["mean"]))}


def fail(setting, rng):
    raise RuntimeError(f"no trial in {setting} after {rng.random():.0f}")


def process(_task):
    return os.getpid()


def refuse(task):
    raise RuntimeError(f"task {task}")


def die_once(task):
    """Kill the worker the first time that a task is run; its file remembers."""
    path, number = task
    marker = path / f"{number}"
    if number % 3 == 0 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(_task):
    os.kill(os.getpid(), signal.SIGKILL)
