"""The Python interpreter that all operators of a TaskManager share.

In thread mode every task is a thread of the JVM with one interpreter lock between them, and each call from Python into
Flink (state, timers, side outputs) and each record from Flink into Python gives the lock away and wants it back. By
default a thread that only computes keeps it for five milliseconds each time: a planner's tick of 50 ms then costs a
thread with a record of ten such calls 50 ms of waiting for it. Handing over sooner costs nothing where nobody waits.
"""

from __future__ import annotations

import sys

SWITCH_INTERVAL_S = 0.000_2
"""How long a computing thread keeps the lock while another one waits for it."""


def share_fairly() -> None:
    """Makes threads hand over soon. Called by the operator that every job begins with; harmless when repeated."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
