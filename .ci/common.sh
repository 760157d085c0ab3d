# What .ci/run and .ci/nightly share; both source it from the root of the checkout.
#
# Packages come from where pip would fetch them, but uv installs them: in seconds, where
# pip takes minutes for each environment.
work=$(mktemp -d)
trap 'jobs -p | xargs -r kill 2>/dev/null || true; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
# Many processes import the same packages: each is compiled once, whatever
# this machine tells Python, and beside the checkout.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$work/bytecode"

if ! command -v uv >/dev/null; then
  python3 -m venv "$work/uv"
  "$work/uv/bin/python" -m pip install -qq uv
  PATH="$PATH:$work/uv/bin"
fi
base_path=$PATH

# pip_setting NAME: what pip is told by its environment or its files; uv reads neither.
pip_setting() {
  local told="PIP_${1^^}"
  told=${told//-/_}
  echo "${!told:-$(python3 -m pip config get "global.$1" 2>/dev/null || true)}"
}
export UV_SYSTEM_CERTS=1 UV_INDEX_STRATEGY=unsafe-best-match
default_index=$(pip_setting index-url)
more_indexes=$(pip_setting extra-index-url)
found_links=$(pip_setting find-links)
if [ -n "$default_index" ]; then export UV_DEFAULT_INDEX=$default_index; fi
if [ -n "$more_indexes" ]; then export UV_EXTRA_INDEX_URL=$more_indexes; fi
if [ -n "$found_links" ]; then export UV_FIND_LINKS=${found_links// /,}; fi

step() { printf '\n=== %s (%ss)\n' "$1" "$SECONDS"; }

# environment NAME [PYTHON]: makes a virtual environment and puts it first on the path.
environment() {
  local python=${2:-$(PATH=$base_path command -v python3)}
  uv venv --quiet --seed --python "$python" "$work/$1"
  export VIRTUAL_ENV="$work/$1"
  PATH="$work/$1/bin:$base_path"
}

install() { uv pip install --quiet "$@"; }

# main_environment: all extras that go together, as most tests need them.
main_environment() {
  environment main
  install torch==2.13.0
  install -e '.[all,huggingface,opendp]' -e lab --group dev --group docs
}
every_extra="opacus sweep ray tables accounting report sign jax lightning huggingface"
every_extra="$every_extra opendp"
export DPAUDIT_TEST_EXTRAS="$every_extra docs"

# job NAME COMMAND: runs it beside others, as many at a time as there are cores; what it
# printed is shown once it is done. `finish` waits for all, and fails if one did.
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)  # which obeys those
started=()
job() {
  local name=$1
  shift
  while [ "$(jobs -rp | wc -l)" -ge "$cores" ]; do wait -n || true; done
  started+=("$name")
  (
    set -euo pipefail
    start=$SECONDS
    trap 'code=$?; times >"$work/$name.cpu"
      cpu=$(tail -n 1 "$work/$name.cpu")
      echo "$code" >"$work/$name.code"
      printf "%-12s code %s  %4ss  CPU (user system) %s\n" "$name" "$code" \
        "$((SECONDS - start))" "$cpu" >"$work/$name.line"
      { step "$name"; cat "$work/$name.log" "$work/$name.line"; } >&3' EXIT
    "$@"
  ) >"$work/$name.log" 2>&1 &
}
exec 3>&1

finish() {
  local name failed=0
  wait
  step "all jobs"
  for name in "${started[@]}"; do
    cat "$work/$name.line"
    if [ "$(cat "$work/$name.code")" != 0 ]; then failed=1; fi
  done
  if [ "$failed" = 0 ]; then step "all is well"; fi
  return "$failed"
}

# tests TIER PATH...: the tests of a tier, "not nightly" or "nightly", in these folders.
tests() {
  local tier=$1
  shift
  python -m pytest -q -p no:cacheprovider -m "$tier" --durations 5 "$@"
}

# wheel: builds it, and tests it where `src` is out of reach: what is imported is what
# the wheel holds, and the tests are those of the sdist. Everything is tested elsewhere;
# a few tests show that the wheel holds what they need.
wheel() {
  .ci/build "$work/dist"
  environment wheel
  install "$work"/dist/*.whl --group wheel-test
  mkdir "$work/elsewhere"
  tar -xzf "$work"/dist/*.tar.gz -C "$work/elsewhere" --strip-components 1 \
    --exclude '*/src'
  cd "$work/elsewhere"
  local installed
  installed=$(python -c 'import dpaudit; print(dpaudit.__path__[0])')
  DPAUDIT_TEST_EXTRAS="" python -m pytest -q -p no:cacheprovider \
    tests/test_face.py tests/cli/test_tool.py tests/cli/test_bound.py \
    tests/evidence/test_schemas.py tests/plugin/test_plugin.py "$installed/game"
}
