"""Before the broadcast: a policy record that cannot be read becomes a dead letter instead of a restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyflink.datastream import ProcessFunction, RuntimeContext

from jobs import metrics
from jobs.operators.exits import dead_letter_row
from jobs.operators.tags import DEAD
from schemas import PoisonMessage, Policy, decode, encode, letter_of


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
            yield DEAD, dead_letter_row(encode(letter_of(self._topic, value, max(0, ctx.timestamp()), poison)))
        else:
            yield value
