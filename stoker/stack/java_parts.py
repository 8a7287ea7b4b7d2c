"""Compiles what of the job is Java (`jobs/java`) into stoker-flink.jar: `python -m stoker.stack.java_parts`.

Eclipse's compiler does it, since the Java that runs Flink need not have one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from schemas.errors import StackFault
from stoker.stack.flink_java import distribution
from stoker.stack.java import OLDEST, java_home
from stoker.stack.paths import PROJECT, cache_folder, jars

NAME = "stoker-flink.jar"
SOURCES = PROJECT / "jobs" / "java"


def build() -> Path:
    """Makes the jar and returns where it lies.

    Raises:
        StackFault: there is no compiler or no Flink, or it does not compile.
    """
    target = cache_folder() / "jars" / "stoker" / NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    flink = next((distribution() / "lib").glob("flink-dist-*.jar"))
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        classes = Path(work, "classes")
        command = [java_home() / "bin" / "java", "-jar", *jars("compiler"), f"-{OLDEST}", "-encoding", "UTF-8"]
        command += ["-warn:none", "-cp", flink, "-d", classes, SOURCES]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackFault(f"{SOURCES} does not compile:\n{done.stdout}{done.stderr}")
        made = Path(work, NAME)
        with zipfile.ZipFile(made, "w") as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.write(path, path.relative_to(classes))
        made.rename(target)
    return target


if __name__ == "__main__":
    try:
        print(f"{build().name}: made")
    except StackFault as fault:
        sys.exit(f"stoker-flink.jar: {fault}")
