"""Before the broadcast: a policy record that cannot be read becomes a dead letter instead of a restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyflink.datastream import ProcessFunction, RuntimeContext

from jobs import metrics
from jobs.operators.exits import dead_letter_row
from jobs.operators.tags import DEAD
from schemas import DeadLetter, PoisonMessage, Policy, decode, encode
from schemas.canonical import dead_id


class PolicyGate(ProcessFunction):  # type: ignore[misc]  # untyped base
    """Valid policies go on, dead letters leave by the side.

    Args:
        topic: full name of the policy topic, for dead letters.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def open(self, runtime_context: RuntimeContext) -> None:
        """Registers the counter."""
        self._dead = runtime_context.get_metrics_group().counter(metrics.DEAD_LETTERS)

    def process_element(self, value: bytes, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """One record of warmup.policy."""
        try:
            decode(value, Policy)
        except PoisonMessage as poison:
            self._dead.inc()
            yield DEAD, dead_letter_row(_letter(self._topic, value, ctx.timestamp(), poison))
        else:
            yield value


def _letter(topic: str, value: bytes, record_ms: int, poison: PoisonMessage) -> bytes:
    at_ms = max(0, record_ms)
    return encode(
        DeadLetter(
            dead_id=dead_id(topic, value, at_ms),
            at_ms=at_ms,
            source_topic=topic,
            reason=poison.reason,
            path=poison.path[:256],
            detail=poison.detail[:256],
            size=len(value),
        )
    )
