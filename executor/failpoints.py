"""Fail-points: places where a test may end this process as hard as a power cut does.

`STOKER_FAILPOINT=name` kills at the first passage of that step, `name:3` at the third. The names are the numbered steps
of a command's life in `docs/structure.md`. Without the variable, `reached` is an empty function.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Literal, get_args

from schemas.errors import BrokenConfiguration

VARIABLE = "STOKER_FAILPOINT"

FailPoint = Literal[
    "policy_read",
    "ledger_rebuilt",
    "command_consumed",
    "command_admitted",
    "command_taken",
    "apply_started",
    "apply_answered",
    "outcome_published",
    "ledger_finished",
    "offset_committed",
]
FAIL_POINTS: tuple[FailPoint, ...] = get_args(FailPoint)


def _pass(_name: FailPoint, /) -> None:
    """Nothing is armed."""


def armed(spec: str, end: Callable[[], None]) -> Callable[[FailPoint], None]:
    """The function that calls `end` when the step of `spec` (`name` or `name:passage`) is reached.

    Raises:
        BrokenConfiguration: there is no such step.
    """
    name, _, passage = spec.partition(":")
    if name not in FAIL_POINTS or (passage and not passage.isdecimal()):
        raise BrokenConfiguration(f"{VARIABLE}: no fail-point {spec!r}; known: {', '.join(FAIL_POINTS)}")
    left = int(passage or 1)

    def reach(step: FailPoint, /) -> None:
        nonlocal left
        if step == name:
            left -= 1
            if left == 0:
                end()

    return reach


def _end_hard() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


reached: Callable[[FailPoint], None] = armed(os.environ[VARIABLE], _end_hard) if VARIABLE in os.environ else _pass
"""Says that a step is done and its effect is outside this process (or, for admission, decided)."""
