"""The error tree of Stoker.

Five questions decide what a caller does, so there are five branches: is the *input* bad (`PoisonMessage`: dead-letter
it and go on), may a *repetition* help (`TransientFault`), has the other side *refused* for good (`RefusedCommand`),
did the *person* who runs it make a mistake (`BrokenConfiguration`), is a part of the stack gone (`StackFault`)?
"""

from __future__ import annotations

import enum


class StokerError(Exception):
    """Root of everything Stoker raises on purpose. `exit_code` is what the command line ends with."""

    exit_code = 1


class DeadReason(enum.StrEnum):
    """Why a record went to `warmup.dlq`; the `reason` of a DeadLetter."""

    MALFORMED_JSON = "malformed_json"
    NOT_UTF8 = "not_utf8"
    UNKNOWN_SCHEMA = "unknown_schema"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    TOO_LARGE = "too_large"
    BAD_HASH = "bad_hash"
    TIME_SKEW = "time_skew"
    UNKNOWN_TENANT = "unknown_tenant"


class PoisonMessage(StokerError):
    """A record that no repetition will make readable.

    Args:
        reason: the enumerated cause.
        path: JSON path of the offending field, `$` for the record itself.
        detail: a sentence for a person; never contains the value, which may be a prompt.
    """

    def __init__(self, reason: DeadReason, path: str = "$", detail: str = "") -> None:
        super().__init__(f"{reason} at {path}" + (f": {detail}" if detail else ""))
        self.reason = reason
        self.path = path
        self.detail = detail


class TransientFault(StokerError):
    """Something outside did not answer, or asked to come back later. Repeating may help."""


class RefusedCommand(StokerError):
    """The other side understood and said no. Repeating the same call will not help.

    Args:
        message: what was refused and why.
        reason: enumerated reason for a WarmupOutcome, where one applies.
    """

    def __init__(self, message: str, reason: str = "engine_refused") -> None:
        super().__init__(message)
        self.reason = reason


class BrokenConfiguration(StokerError):
    """A setting, flag or file of the user is wrong. The message names it, its place and the cure."""

    exit_code = 2


class StackFault(StokerError):
    """A part of the stack (Kafka, Flink, Redis, an engine, a jar) is missing or died. The message names the cure."""

    exit_code = 3
