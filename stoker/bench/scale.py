"""Bench `scale`: what an event costs and what the job keeps while tenants grow to 100,000, keys and the window tenfold.

All operators run in one process over stores in memory (`stoker.local_job`), one size at a time, each in a process of
its own. **Tenants**: the same requests at the same times for the same queries, each with a prompt and a user of its
own, in all; only who asks differs, and every tenant has as many queries. So what all tenants share in one size, each
has alone in the last one, where a request is nearly always the only one of its tenant in a slide: the smaller steps
show what a scope's own messages cost, the last one whether anything walks over all tenants. Budgets bind nobody, as
they would bind one tenant otherwise than many. **Keys**: a tenth of requests and queries in the same time. **Window**:
a tenth of it, the same requests.

An event's cost is processor time, slides and ticks included, the median of five stretches after as long a time that
fills the windows. State is what the stores hold; vectors are drawn by chance and no model runs. Parallelism on Flink is
not measured here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import msgspec

from schemas.errors import StackFault
from stoker.bench.figures import Figure, Report, at_most
from stoker.bench.scale_play import Played, Size

TENANTS = (1, 10, 100, 1_000, 10_000, 100_000)
WINDOW_MS = 300_000
MOST = 1.2
"""Of the tenth of a size: flat within a fifth."""
_KEYS_PER_EVENT = 1.2
"""So that each key is new once in the two spans of a run, in which six of ten requests are for the next key."""


def run(events: int = 84_000) -> Report:
    """Figures time_ratio_10x_tenants, state_bytes_per_key, time_ratio_10x_window: the worst step first, then each size.

    Args:
        events: in one window, and as many before it; with fewer than 84,000 there are fewer tenants.
    """
    return compared(events, apart)


def compared(events: int, play: Callable[[Size], Played]) -> Report:
    """The figures of all sizes, played one after the other."""
    report, keys = Report("scale"), round(events * _KEYS_PER_EVENT)
    most = [tenants for tenants in TENANTS if tenants <= keys]
    by_tenants = {tenants: play(Size(tenants, keys, events, WINDOW_MS)) for tenants in most}
    middle = most[len(most) // 2]
    whole = by_tenants[middle]
    few_keys = play(Size(max(1, middle // 10), keys // 10, events // 10, WINDOW_MS))
    short = play(Size(middle, keys, events, WINDOW_MS // 10))
    for tenants, played in by_tenants.items():
        _tell(report, f"tenants_{tenants}", played)
    _tell(report, "keys_tenth", few_keys)
    _tell(report, "window_tenth", short)
    steps = list(pairwise(most))
    for fewer, more in steps:
        less, each = by_tenants[fewer], by_tenants[more]
        _step(report, f"time_ratio_10x_tenants.{more}", each.event_us, less.event_us)
        _step(report, f"state_ratio_10x_tenants.{more}", each.bytes_per_key, less.bytes_per_key)
    worst = max((by_tenants[more].event_us / by_tenants[fewer].event_us for fewer, more in steps), default=1.0)
    report.add(Figure("time_ratio_10x_tenants", worst, goal=at_most(MOST)))
    _step(report, "state_ratio_10x_keys", whole.bytes_per_key, few_keys.bytes_per_key)
    _step(report, "time_ratio_10x_window", whole.event_us, short.event_us)
    report.add(Figure("state_bytes_per_key", whole.bytes_per_key, "bytes", baseline=few_keys.bytes_per_key))
    return report


def apart(size: Size) -> Played:
    """Plays a size in a process of its own.

    Raises:
        StackFault: the process failed.
    """
    command = [sys.executable, "-m", "stoker.bench.scale_play", msgspec.json.encode(size).decode()]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise StackFault(f"bench scale: a size of {size.tenants} tenants ended with status {done.returncode}: {last}")
    return msgspec.json.decode(done.stdout, type=Played)


def _tell(report: Report, size: str, played: Played) -> None:
    report.add(Figure(f"event_us.{size}", played.event_us, "us"))
    report.add(Figure(f"state_bytes_per_key.{size}", played.bytes_per_key, "bytes"))
    report.add(Figure(f"resident_bytes_per_key.{size}", played.resident_bytes / played.keys, "bytes"))


def _step(report: Report, name: str, value: float, tenth: float) -> None:
    report.add(Figure(name, value / tenth, goal=at_most(MOST)))
