"""The last hop: envelopes become the records of their topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from pyflink.datastream import ProcessFunction, RuntimeContext

from analytics.envelopes import Tag, body_of, key_of, tag_of
from jobs import metrics
from jobs.operators.tags import INSIGHTS
from jobs.rows import keyed


class _Kind(msgspec.Struct):
    kind: str


class _Command(msgspec.Struct):
    target: _Kind


class _Dead(msgspec.Struct):
    reason: str


def dead_letter_row(letter: bytes) -> Any:
    """A dead letter as a record of its topic, keyed by reason."""
    return keyed(msgspec.json.decode(letter, type=_Dead).reason, letter)


class Exits(ProcessFunction):  # type: ignore[misc]  # untyped base
    """Commands go on, counted by kind; insights leave by the side."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Counters are made as kinds appear."""
        self._group = runtime_context.get_metrics_group()
        self._counters: dict[str, Any] = {}

    def process_element(self, value: bytes, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """One envelope of plan."""
        del ctx
        row = keyed(key_of(value), body_of(value))
        if tag_of(value) == Tag.COMMAND:
            self._count(msgspec.json.decode(body_of(value), type=_Command).target.kind)
            yield row
        else:
            yield INSIGHTS, row

    def _count(self, kind: str) -> None:
        counter = self._counters.get(kind)
        if counter is None:
            counter = self._counters[kind] = self._group.add_group("kind", kind).counter(metrics.COMMANDS)
        counter.inc()
