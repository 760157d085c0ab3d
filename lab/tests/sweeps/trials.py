"""Tasks and trials for the tests, where worker processes can import them."""

import os
import signal
import sys
import time


def draw(setting, rng):
    time.sleep(setting.get("seconds", 0.0))
    return {"x": float(rng.normal(setting["mean"]))}


def fail_at_times(setting, rng):
    """Raise in about half of the trials, unless the cause is mended."""
    x = float(rng.random())
    if x < 0.5 and not os.path.exists(setting["mended"]):
        raise RuntimeError(f"no luck with {x:.3f}")
    return {"x": x}


def unstorable(_setting, rng):
    return {"x": float("nan") if rng.random() < 0.5 else 1.0}


def odd(setting, rng):
    """Do what a trial should not, in the third of ten."""
    number = int(rng.bit_generator.seed_seq.spawn_key[-1])
    if number != 2:
        return {"x": number}
    match setting["what"]:
        case "exit":
            sys.exit(0)
        case "surrogate":
            raise OSError("cannot read b\udcff")
        case "list":
            return [1, 2]
        case "nested":
            return {"x": [1, 2]}
        case "number":
            return {1: 2}
        case "interrupted":
            raise GeneratorExit
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return {"x": number}


def counting(setting, _rng):
    """Change the setting, which is for this trial alone."""
    setting["seen"] += 1
    return {"seen": setting["seen"]}


def process(_task):
    return os.getpid()


def threads(_task):
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return tuple(os.environ.get(name) for name in names)


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
