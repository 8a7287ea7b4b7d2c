"""The host that an executor runs on: how short of memory it is."""

from __future__ import annotations

from pathlib import Path

PRESSURE = Path("/proc/pressure/memory")


def memory_pressure(path: Path = PRESSURE) -> float | None:
    """Share of the last 10 s in which some task waited for memory, 0..1 (Linux, PSI: `some avg10`).

    None where the kernel does not tell: before Linux 4.20, with `psi=0`, elsewhere.
    """
    try:
        kind, *fields = path.read_text().split("\n", 1)[0].split()
        told = dict(field.split("=", 1) for field in fields)
        return min(1.0, max(0.0, float(told["avg10"]) / 100)) if kind == "some" else None
    except (OSError, ValueError, KeyError):
        return None
