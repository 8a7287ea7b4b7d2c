"""The smallest job that shows lost or doubled state: counts records per key and writes each with its count.

Input `key,number`, output `key,number,count`: count must be the number's ordinal within its key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pyflink.common import ByteArraySchema, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.state import ValueStateDescriptor

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Iterator[bytes]:  # noqa: ARG002
        count = int(self.count.value() or b"0") + 1
        self.count.update(b"%d" % count)
        yield b"%s,%d" % (value, count)


def main(bootstrap: str, source: str, sink: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_max_parallelism(720)
    records = env.from_source(
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics(source)
        .set_group_id(f"{source}-count")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(ByteArraySchema())
        .build(),
        WatermarkStrategy.no_watermarks(),
        "source",
    ).uid("source")
    counted = records.key_by(lambda value: bytes(value).split(b",")[0].decode(), Types.STRING()).process(Count(), BYTES)
    counted.uid("count").sink_to(
        KafkaSink.builder()
        .set_bootstrap_servers(bootstrap)
        .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic(sink)
            .set_value_serialization_schema(ByteArraySchema())
            .build()
        )
        .build()
    ).uid("sink")
    env.execute("counting")


if __name__ == "__main__":
    main(*sys.argv[1:4])
