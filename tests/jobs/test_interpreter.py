"""What an operator sets for the whole process: tried in a process of its own."""

from __future__ import annotations

import subprocess
import sys

from jobs.interpreter import SWITCH_INTERVAL_S

SCRIPT = """
import gc, sys
from jobs.interpreter import settle_in
settle_in()
frozen = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
settle_in()
print(sys.getswitchinterval(), frozen, gc.get_freeze_count())
"""


def test_threads_hand_over_soon_and_the_collector_leaves_out_what_was_there_first() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    interval, first, second = done.stdout.split()
    assert abs(float(interval) - SWITCH_INTERVAL_S) < 1e-6
    assert int(first) > 0
    assert first == second
