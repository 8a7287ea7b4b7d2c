"""Baseline of bench `pipeline`: a job that reads requests, counts per key in one small state, and writes them on.

It is what Flink and PyFlink cost by themselves on this machine: nothing of Stoker's decisions runs in it.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from jobs.settings import load_settings
from jobs.streams import data_watermarks, keyed, keyed_type, sink, source
from jobs.warmup import environment
from schemas.topics import REQUESTS, Topic

KEYS = 5_000
OUT = Topic("bench.out", "key", 3_600_000)


def key_of_record(record: bytes) -> int:
    """One of 5,000 keys, from the record's head, where its ids are."""
    return zlib.crc32(record[:120]) % KEYS


class Count(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """One small state read and written per record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens the state."""
        from pyflink.common import Types
        from pyflink.datastream.state import ValueStateDescriptor

        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Sequence[Any]:
        """One record."""
        del ctx
        held = self._count.value()
        self._count.update(b"1" if held is None else b"%d" % (int(held) + 1))
        return (keyed("k", value),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds and submits the job."""
    from pyflink.common import Types

    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    settings = load_settings(parser.parse_args(arguments).config)
    env = environment(settings, None)
    records = env.from_source(
        source(settings.kafka, (REQUESTS,), settings.kafka.group("bench"), "earliest"),
        data_watermarks(settings.timing),
        "records",
    ).uid("records")
    counted = records.key_by(key_of_record, Types.INT()).process(Count(), keyed_type()).uid("count").name("count")
    counted.sink_to(sink(settings.kafka, OUT)).uid("out").name("out")
    env.execute("passthrough")
    return 0


if __name__ == "__main__":
    # By its importable name, so that a TaskManager finds the function's class.
    from stoker.bench.baseline import passthrough

    sys.exit(passthrough.main())
