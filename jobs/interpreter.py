"""The Python interpreter that all operators of a TaskManager share.

In thread mode every task is a thread of the JVM with one interpreter lock between them, and each call from Python into
Flink (state, timers, side outputs) and each record from Flink into Python gives the lock away and wants it back. By
default a thread that only computes keeps it for five milliseconds each time: a planner's tick of 50 ms then costs a
thread with a record of ten such calls 50 ms of waiting for it. Handing over sooner costs nothing where nobody waits.

Since only one of them computes at a time, a second core brings these threads little, and costs them much: whatever
one has touched last, the counts of all common objects above all, has to come over from the other's cache, and who wants
the lock sleeps until the other core wakes it. So they share one core, and leave the others to the model, to Kafka's
client, to Flink's network and to Java's compiler and collector.

A full garbage collection holds the lock throughout, and walks every object of every library that was imported: 100 ms
and more. What is there when an operator has opened stays for the life of the process, so it is left out from then on.
Each record leaves some objects behind that only counting holds (a row, the generators that it came through): looked at
every 700 of them, as by default, a busy demand shard spends 8 % of its time on it and finds nothing.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import Any

from jobs.settings import JobSettings

SWITCH_INTERVAL_S = 0.001
"""How long a computing thread keeps the lock while another one waits for it."""
GC_THRESHOLDS = (50_000, 20, 20)
"""Objects more than before at which the young are looked at, and how many such looks before the older ones are."""


def share_core(settings: JobSettings, context: Any) -> None:
    """Keeps the calling thread on the core that all operators of its subtask share. Called in their `open`.

    Subtasks take different cores of those that the process may use. An operator that works outside of Python, as the
    encoder's, does not call it; a process's first thread is never kept, because whatever it starts would be too.

    Args:
        settings: of the job; `warmup.share_core` may forbid it.
        context: Flink's RuntimeContext.
    """
    if settings.warmup.share_core and hasattr(os, "sched_setaffinity") and threading.get_native_id() != os.getpid():
        cores = sorted(os.sched_getaffinity(os.getpid()))
        # PyFlink's own get_index_of_this_subtask asks for a method that Flink 2 has no more.
        subtask = context._runtime_context.getTaskInfo().getIndexOfThisSubtask()
        os.sched_setaffinity(0, {cores[subtask % len(cores)]})


def settle_in() -> None:
    """Makes threads hand over soon, and the collector come seldom and pass by what is there by now.

    Called at the end of `open` by the operator that imports most and opens last. The last part happens once a
    process: what a failed attempt of a job left behind must not stay.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
