"""Tasks and trials for the tests, where worker processes can import them."""

import os
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
