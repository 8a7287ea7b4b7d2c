"""Operator 1: every record of the data topics becomes a fact, a control envelope or a dead letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflink.datastream import ProcessFunction, RuntimeContext

from analytics.envelopes import Tag, tag_of
from analytics.facts import shard_of
from analytics.ingest import Ingest
from jobs import metrics
from jobs.interpreter import share_core
from jobs.operators.exits import dead_letter_row
from jobs.operators.tags import CONTROL, DEAD, PROMPTED, TURNS
from jobs.placement import shard_keys
from jobs.rows import Pair, addressed
from jobs.settings import JobSettings


class IngestOperator(ProcessFunction):  # type: ignore[misc]  # untyped base
    """Facts go on, each in a row with its shard's key; what is for planners, dead or watched leaves by the side.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Builds the decision."""
        settings = JobSettings.from_json(self._settings)
        if not settings.warmup.ingest_apart:
            share_core(settings, runtime_context)
        self._ingest = Ingest(settings.ingest())
        self._keys = shard_keys(settings.warmup.shards)
        self._dead = runtime_context.get_metrics_group().counter(metrics.DEAD_LETTERS)

    def process_element(self, value: bytes, ctx: ProcessFunction.Context) -> Sequence[Any]:
        """One record; its time on the topic is the element's timestamp."""
        read = self._ingest.on_record(value, ctx.timestamp())
        if read.dead is not None:
            self._dead.inc()
            dead = (DEAD, dead_letter_row(read.dead))
            return (dead,) if read.fact is None else (self._row(read.fact), dead)
        if read.fact is None:
            return [(CONTROL, addressed(envelope)) for envelope in read.control]
        if not read.watched:
            return (self._row(read.fact),)
        return [self._row(read.fact), *((_SIDES[tag_of(envelope)], addressed(envelope)) for envelope in read.watched)]

    def _row(self, fact: bytes) -> Pair:
        return Pair(self._keys[shard_of(fact)], fact)


_SIDES = {int(Tag.TURN): TURNS, int(Tag.PROMPTED): PROMPTED}
