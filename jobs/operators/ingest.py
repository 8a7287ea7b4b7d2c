"""Operator 1: every record of the data topics becomes a fact, a control envelope or a dead letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflink.datastream import ProcessFunction, RuntimeContext

from analytics.bundles import pack, records_of
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
    """Facts go on in bundles, each in a row with its shard's key; what is for planners, dead or watched leaves aside.

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
        self._bundled = settings.warmup.bundled
        self._keys = shard_keys(settings.warmup.shards)
        self._dead = runtime_context.get_metrics_group().counter(metrics.DEAD_LETTERS)

    def process_element(self, value: bytes, ctx: ProcessFunction.Context) -> Sequence[Any]:
        """A bundle of records, or one whose time on the topic is the element's timestamp."""
        records = records_of(value) if self._bundled else ((ctx.timestamp(), value),)
        on_record = self._ingest.on_record
        shards: dict[int, list[bytes]] = {}
        out: list[Any] = []
        for at_ms, record in records:
            read = on_record(record, at_ms)
            fact = read.fact
            if fact is not None:
                shards.setdefault(shard_of(fact), []).append(fact)
            if read.dead is not None:
                self._dead.inc()
                out.append((DEAD, dead_letter_row(read.dead)))
            for envelope in read.control:
                out.append((CONTROL, addressed(envelope)))
            for envelope in read.watched:
                out.append((_SIDES[tag_of(envelope)], addressed(envelope)))
        out += [Pair(self._keys[shard], pack(facts)) for shard, facts in shards.items()]
        return out


_SIDES = {int(Tag.TURN): TURNS, int(Tag.PROMPTED): PROMPTED}
