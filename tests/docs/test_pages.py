"""The runner of pages notices whatever on a page does not do what it says."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[2] / ".ci" / "page.py"


@pytest.fixture
def walk(tmp_path):
    def walked(text, *options):
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        return subprocess.run(
            [sys.executable, RUNNER, *options, page],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return walked


def test_a_page_is_one_session_of_names_and_files(walk, tmp_path):
    done = walk(
        """\
```python
from pathlib import Path

number = 7
Path("made.txt").write_text("from python\\n")
```

<!-- Prepared.
```python
hidden = number + 1
```
-->

```pycon
>>> hidden
8
>>> later = 9
```

```python kept.py
print("from a file")
```

```console
$ cat made.txt
from python
$ python kept.py
from a file
$ false || echo "exit code $?"
exit code 1
```

```python
assert later == 9
```
"""
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kept.py").exists()


@pytest.mark.parametrize(
    ("page", "named"),
    [
        ("```console\n$ echo 1\n2\n```\n", "expected:\n2\n"),
        ("```console\n$ ls --nonsense\n```\n", "exit code 2"),
        ("```pycon\n>>> 1 + 1\n3\n```\n", "Expected:\n    3"),
        ("```python\nraise ValueError('so')\n```\n", "ValueError('so')"),
        ("```\nno language\n```\n", "language '' cannot be run"),
        ("```{code-block} python\n1\n```\n", "cannot be run"),
        ("```bash\nls\n```\n", "language 'bash' cannot be run"),
        ("````python\n1\n````\n", "a fence that is not understood"),
        ("~~~python\n1\n~~~\n", "a fence that is not understood"),
        ("Prose.\n\n    indented()\n", "indented code; fence it"),
        ("```text\n$ dpaudit plan\n```\n", "this is to be run"),
        ("```text\nfirst\npip install it\n```\n", "this is to be run"),
        ('```json\n{"a": }\n```\n', "not json"),
        ("```toml\na = \n```\n", "not toml"),
        ("```console other\n$ true\n```\n", "no 'other'"),
    ],
)
def test_what_is_wrong_is_named(walk, page, named):
    done = walk(page)
    assert done.returncode == 1
    assert named in done.stderr


@pytest.mark.parametrize(
    ("word", "shown", "right"),
    [
        ("", "p = 0.25", True),
        ("", "p = 0.5", False),
        ("any-numbers", "p = 3e-05", True),
        ("any-numbers", "q = 0.25", False),
        ("any-numbers", "p is 0.25", False),
        ("", "p = ...", True),
    ],
)
def test_numbers_are_free_only_where_the_page_says_so(walk, word, shown, right):
    done = walk(f"```console {word}".rstrip() + f"\n$ echo p = 0.25\n{shown}\n```\n")
    assert (done.returncode == 0) == right


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("pip install 'dpaudit[report]' other", None),
        ("pip install 'dpaudit[nonsense]'", "there is no extra 'nonsense'"),
        ("python lab/measure/nonsense.py", "there is no lab/measure/nonsense.py"),
        ("dpaudit-lab calibrate --nonsense 3", "--nonsense"),
        ("dpaudit-lab calibrate --workers 2", None),
    ],
)
def test_commands_that_are_not_run_are_parsed(walk, command, named):
    done = walk(f"```console\n$ {command}\n```\n", "--installed")
    assert done.returncode == (named is not None), done.stderr
    assert named is None or named in done.stderr


def test_commands_that_the_readme_is_said_to_run_are_in_it():
    runner = runpy.run_path(str(RUNNER))
    readme = (RUNNER.parents[1] / "README.md").read_text(encoding="utf-8")
    left = [name for name, why in runner["LONG"].items() if "README" in why]
    assert left
    for name in left:
        assert f"\n$ {name}" in readme
