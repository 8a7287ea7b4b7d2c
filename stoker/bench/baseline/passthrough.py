"""Baseline of bench `pipeline`: a job that reads requests, counts per key in one small state, and writes them on.

It is what Flink and PyFlink cost by themselves on this machine: nothing of Stoker's decisions runs in it. With
`--tuned` it does what Stoker's job does to cost PyFlink less: records bring their key along, threads share a core.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyflink.common import Row
from pyflink.datastream import KeyedProcessFunction, ProcessFunction, RuntimeContext

from jobs.interpreter import settle_in, share_core
from jobs.rows import Pair
from jobs.settings import JobSettings, load_settings
from jobs.streams import addressed_type, by_address, data_watermarks, keyed_type, sink, source
from jobs.warmup import environment
from schemas.topics import REQUESTS, Topic

KEYS = 5_000
OUT = Topic("bench.out", "key", 3_600_000)


def key_of_record(record: bytes) -> int:
    """One of 5,000 keys, from the record's head, where its ids are."""
    return zlib.crc32(record[:120]) % KEYS


class Address(ProcessFunction):  # type: ignore[misc]  # untyped base
    """What `key_by` does, on the core that all operators share."""

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Chooses the core."""
        share_core(JobSettings.from_json(self._settings), runtime_context)

    def process_element(self, value: bytes, ctx: ProcessFunction.Context) -> Sequence[Any]:
        """One record."""
        del ctx
        return (Pair(key_of_record(value), value),)


class Count(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """One small state read and written per record.

    Args:
        settings: the JSON of the job's settings where it is tuned; else empty.
    """

    def __init__(self, settings: str = "") -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens the state."""
        if self._settings:
            share_core(JobSettings.from_json(self._settings), runtime_context)
            settle_in()
        from pyflink.common import Types
        from pyflink.datastream.state import ValueStateDescriptor

        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Sequence[Any]:
        """One record."""
        del ctx
        held = self._count.value()
        self._count.update(b"1" if held is None else b"%d" % (int(held) + 1))
        return (Row(b"k", value),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds and submits the job."""
    from pyflink.common import Types

    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--tuned", action="store_true")
    given = parser.parse_args(arguments)
    settings = load_settings(given.config)
    env = environment(settings, None)
    records = env.from_source(
        source(settings.kafka, (REQUESTS,), settings.kafka.group("bench"), "earliest"),
        data_watermarks(settings.timing, settings.timing.requests_idle_ms),
        "records",
    ).uid("records")
    if given.tuned:
        rows = records.process(Address(settings.to_json()), addressed_type(Types.INT())).uid("address")
        by_key, count = by_address(rows, Types.INT()), Count(settings.to_json())
    else:
        by_key, count = records.key_by(key_of_record, Types.INT()), Count()
    counted = by_key.process(count, keyed_type()).uid("count").name("count")
    counted.sink_to(sink(settings.kafka, OUT)).uid("out").name("out")
    env.execute("passthrough")
    return 0


if __name__ == "__main__":
    # By its importable name, so that a TaskManager finds the function's class.
    from stoker.bench.baseline import passthrough

    sys.exit(passthrough.main())
