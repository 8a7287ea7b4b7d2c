"""Fetch the jars of one `deploy/jars/NAME` folder and check each against its lock.

`jgo` finds and downloads (it knows Maven's rules and the machine's own settings); the lock says which versions and
which SHA-256, so that what ends in `.cache/jars/NAME` is what was reviewed.
Runs with the tools' Python and needs nothing else.

    python deploy/fetch_jars.py NAME ...
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("STOKER_CACHE") or ROOT / ".cache")
TRIES = 4


def locked(name: str) -> dict[str, tuple[Path, str]]:
    """Jar file name -> (its path inside a Maven repository, SHA-256) of everything the lock of `name` lists."""
    lock = tomllib.loads((ROOT / "deploy/jars" / name / "jgo.lock.toml").read_text())
    jars: dict[str, tuple[Path, str]] = {}
    for item in lock["dependencies"]:
        group, artifact, version = item["groupId"], item["artifactId"], item["version"]
        jar = f"{artifact}-{version}.jar"
        jars[jar] = (Path(*group.split("."), artifact, version, jar), item["sha256"])
    return jars


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def complete(name: str) -> bool:
    """Whether the cache already holds exactly the locked jars."""
    folder = CACHE / "jars" / name
    jars = locked(name)
    return {path.name for path in folder.glob("*.jar")} == set(jars) and all(
        sha256(folder / jar) == digest for jar, (_, digest) in jars.items()
    )


def download(name: str) -> Path:
    """Let jgo fill a Maven repository of our own; its folder is returned. Repeats, because registries hiccup."""
    repository = CACHE / "maven"
    work = CACHE / "jgo" / name
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "deploy/jars" / name, work)
    environment = dict(os.environ, M2_REPO=str(repository), JGO_CACHE_DIR=str(work / "cache"), JGO_TIMEOUT="60")
    jgo = Path(sys.executable).with_name("jgo")
    for attempt in range(TRIES):
        done = subprocess.run(
            [str(jgo), "--quiet", "--resolver", "python", "sync"], cwd=work, env=environment, check=False
        )
        if done.returncode == 0:
            return repository
        print(f"jgo failed for {name}, try {attempt + 1} of {TRIES}", file=sys.stderr)
        time.sleep(3 * (attempt + 1))
    sys.exit(f"the jars of deploy/jars/{name} could not be fetched; see above")


def main(names: list[str]) -> None:
    for name in names:
        if complete(name):
            continue
        repository = download(name)
        folder = CACHE / "jars" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for jar, (path, digest) in locked(name).items():
            source = repository / path
            if not source.exists():
                sys.exit(f"{jar} is in deploy/jars/{name}/jgo.lock.toml but jgo did not fetch it; run `make lock`")
            if sha256(source) != digest:
                sys.exit(f"{jar} differs from the SHA-256 in deploy/jars/{name}/jgo.lock.toml; nothing was installed")
            shutil.copyfile(source, folder / jar)
        print(f"{name}: {len(locked(name))} jars checked")
    shutil.rmtree(CACHE / "maven", ignore_errors=True)
    shutil.rmtree(CACHE / "jgo", ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
