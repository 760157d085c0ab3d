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

# all that CI runs
ci:
    bash .ci/run
