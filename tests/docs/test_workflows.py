"""What runs when something is pushed: pinned, and a release built where no test ran."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github").rglob("*.y*ml"))
USED = [
    pytest.param(line.strip(), id=f"{path.name}:{number}")
    for path in WORKFLOWS
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
    if "uses:" in line
]
pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="an sdist holds no workflows")


def jobs(name):
    """Return the text of each job of a workflow."""
    text = (ROOT / ".github" / "workflows" / name).read_text("utf-8")
    _, *parts = re.split(r"(?m)^  (\w+):\n", text.partition("\njobs:\n")[2])
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("line", USED)
def test_an_action_is_pinned_by_its_hash_and_says_which_version_that_is(line):
    assert re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)


def test_one_action_has_one_hash():
    pins = {each.values[0].removeprefix("- uses: ") for each in USED}
    assert len({pin.partition("@")[0] for pin in pins}) == len(pins) > 0


def test_a_release_is_built_where_no_test_ran_and_published_where_nothing_is_built():
    release = jobs("release.yml")
    needs = {
        name: re.findall(r"(?m)^    needs: (.*)$", job) for name, job in release.items()
    }
    assert needs == {"test": [], "build": ["test"], "publish": ["build"]}
    for words, where in (
        ("bash .ci/run", "test"),
        ("bash .ci/nightly", "test"),
        ("bash .ci/build", "build"),
        ("upload-artifact", "build"),
        ("download-artifact", "publish"),
        ("gh-action-pypi-publish", "publish"),
        ("id-token: write", "publish"),
    ):
        assert [name for name, job in release.items() if words in job] == [where]


def test_every_folder_of_tests_is_in_one_job_of_every_change():
    words = (ROOT / ".ci" / "run").read_text("utf-8").split("finish")[-2].split()
    named = [word for word in words if word.startswith(("tests/", "src", "lab/"))]
    tests = ROOT / "tests"
    apart = {"tests/training/flower", "tests/training/pfl"}  # .ci/nightly federated
    for place in (*tests.iterdir(), *(tests / "training").iterdir()):
        path = place.relative_to(ROOT).as_posix()
        holds_tests = place.name.startswith("test_") or any(place.rglob("test_*.py"))
        if holds_tests and path not in {"tests/training", *apart}:
            fitting = [name for name in named if place.match(name)]
            assert len(fitting) == 1, path
    assert {"src", "lab/tests"} <= {*named}


def test_the_workflow_of_every_night_runs_every_part():
    script = (ROOT / ".ci" / "nightly").read_text("utf-8")
    (parts,) = re.findall(r"(?m)^parts=\$\{\*:-(.*)\}$", script)
    night = jobs("nightly.yml")["part"]
    (some,) = re.findall(r"part: \[(.*)\]", night)
    more = re.findall(r"- \{ part: (\w+),", night)
    assert [*some.split(", "), *more] == parts.split()


def test_no_key_is_kept_with_the_sources():
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert {"*.key", "*.pem"} <= set(ignored)
