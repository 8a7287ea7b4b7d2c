"""Operator `session`: one `Session` per scope and session, fed only where patterns are looked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from analytics.envelopes import open_as
from analytics.sessions import Session
from analytics.stores import MapStore
from analytics.turns import Turn
from jobs.operators.decision import DecisionOperator
from jobs.settings import JobSettings


class SessionOperator(DecisionOperator[Session]):
    """Turns in, patterns out."""

    def maker(self, settings: JobSettings) -> Callable[[str, MapStore], Session]:
        """One a session."""
        config = settings.sessions()
        return lambda _, store: Session(config, store)

    def take(self, decision: Session, envelope: bytes, timers: Any) -> Sequence[bytes]:
        """One prompt."""
        del timers
        return decision.on_turn(open_as(envelope, Turn))
