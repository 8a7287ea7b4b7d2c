#!/usr/bin/env bash
# Regenerate every lock: Python packages (deploy/locks) and jars (deploy/jars/*/jgo.lock.toml). Called by `make lock`.
# The locks hold versions and SHA-256 sums, no hosts and no paths of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -x .tools/bin/uv ] || { echo "run make setup first: it installs uv and jgo into .tools" >&2; exit 2; }

# torch has a step of its own in set-up (CPU wheel); it and what its CUDA build drags along stay out of the lock.
TORCH_ONLY='^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)=='

compile() { # OUTPUT ARGUMENTS...
  local output=$1
  shift
  .tools/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --output-file "$output" "$@"
}

lock() { # NAME ARGUMENTS...
  local name=$1 draft omit=()
  shift
  draft=$(mktemp -d)
  # Present pins are kept where they still fit; UPGRADE=1 takes the newest of everything.
  if [ -z "${UPGRADE:-}" ] && [ -f "deploy/locks/$name.txt" ]; then
    cp "deploy/locks/$name.txt" "$draft/all.txt"
  fi
  compile "$draft/all.txt" "$@"
  cp "$draft/all.txt" "$draft/lock.txt"
  while read -r package; do omit+=(--no-emit-package "$package"); done \
    < <(grep -oE "$TORCH_ONLY" "$draft/all.txt" | sed 's/==$//' | sort -u)
  compile "$draft/lock.txt" "$@" "${omit[@]}"
  # The list of what was left out, and the marker that every line shares, say nothing to a reader.
  sed -i -e '/^# The following packages were excluded/,$d' \
    -e "s/ ; python_full_version < '3.13' and platform_machine == 'x86_64' and sys_platform == 'linux'//" "$draft/lock.txt"
  mv "$draft/lock.txt" "deploy/locks/$name.txt"
  rm -r "$draft"
  echo "deploy/locks/$name.txt: $(grep -cE '^[a-z0-9]' "deploy/locks/$name.txt") packages"
}

lock dev pyproject.toml --extra stack --group dev
lock job pyproject.toml
lock executor --group executor
lock tools --group tools

for name in kafka flink compiler; do
  work=$(mktemp -d)
  cp "deploy/jars/$name/jgo.toml" "$work/"
  (cd "$work" && M2_REPO="$work/repository" JGO_CACHE_DIR="$work/cache" "$OLDPWD/.tools/bin/jgo" --quiet --resolver python lock)
  sed -i '/^generated = /d' "$work/jgo.lock.toml"
  mv "$work/jgo.lock.toml" "deploy/jars/$name/"
  rm -r "$work"
  echo "deploy/jars/$name/jgo.lock.toml: $(grep -c sha256 "deploy/jars/$name/jgo.lock.toml") jars"
done
