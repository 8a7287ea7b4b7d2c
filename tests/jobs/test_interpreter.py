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


SHARING = """
import os, threading
from types import SimpleNamespace as Like
from jobs.interpreter import share_core
from jobs.settings import JobSettings, WarmupSettings

def opens(subtask, **settings):
    info = Like(getIndexOfThisSubtask=lambda: subtask)
    context = Like(_runtime_context=Like(getTaskInfo=lambda: info))
    share_core(JobSettings(warmup=WarmupSettings(**settings)), context)
    found.append(sorted(os.sched_getaffinity(0)))

def in_a_thread(*args, **named):
    thread = threading.Thread(target=opens, args=args, kwargs=named)
    thread.start()
    thread.join()

found, cores = [], sorted(os.sched_getaffinity(0))
in_a_thread(0)
in_a_thread(len(cores))
in_a_thread(len(cores) - 1)
in_a_thread(0, share_core=False)
opens(0)
assert found == [cores[:1], cores[:1], cores[-1:], cores, cores], found
"""


def test_operators_of_a_subtask_share_a_core_and_a_process_s_first_thread_none() -> None:
    subprocess.run([sys.executable, "-c", SHARING], check=True, timeout=120)
