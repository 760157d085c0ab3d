# The few commands a contributor needs; run them in an activated environment.

# ruff (lint and format), mypy --strict, import-linter
lint:
    .ci/lint

# doctests and tests, in parallel
test *arguments:
    pytest -n auto {{arguments}}

# the README and the first tutorial to the letter, in a fresh environment
walk:
    python .ci/walk.py

# the documentation: built strictly, and every block on its pages run
docs:
    .ci/docs

# all that every change must pass
ci:
    bash .ci/run

# the rest of CI, or some parts of it
nightly *parts:
    bash .ci/nightly {{parts}}
