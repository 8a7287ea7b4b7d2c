"""The Python interpreter that all operators of a TaskManager share.

In thread mode every task is a thread of the JVM with one interpreter lock between them, and each call from Python into
Flink (state, timers, side outputs) and each record from Flink into Python gives the lock away and wants it back. By
default a thread that only computes keeps it for five milliseconds each time: a planner's tick of 50 ms then costs a
thread with a record of ten such calls 50 ms of waiting for it. Handing over sooner costs nothing where nobody waits.

A full garbage collection holds the lock throughout, and walks every object of every library that was imported: 100 ms
and more. What is there when an operator has opened stays for the life of the process, so it is left out from then on.
"""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.000_2
"""How long a computing thread keeps the lock while another one waits for it."""


def settle_in() -> None:
    """Makes threads hand over soon, and the collector pass by what is there by now.

    Called at the end of `open` by the operator that imports most and opens last. The second part happens once a
    process: what a failed attempt of a job left behind must not stay.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
