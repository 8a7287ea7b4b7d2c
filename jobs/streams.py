"""Kafka sources and sinks of the jobs, their types, and the marks that route records between operators.

Everything between operators is `bytes`; what goes to a topic is a row of (key, value), because the Python sink can only
write a key that way. pyflink is imported inside: it costs seconds, and only a submission needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connectors.kafka.security import flink_properties
from connectors.settings import KafkaSettings
from jobs.settings import Timing
from schemas.errors import BrokenConfiguration
from schemas.topics import MAX_MESSAGE_BYTES, Topic

POLICY_IDLE_MS = 1_000
"""A quiet policy topic must not hold event time back longer than this."""
BUNDLE_BYTES = 512 * 1024
"""Of a bundle of several records."""
FETCH_BYTES = 128 * 1024
"""What one partition brings at a time; a larger record comes alone. All partitions get their turn well within the time
after which one counts as idle, even when a backlog is read: the backlog of one that is passed over would come late."""


def bytes_type() -> Any:
    """Type of everything that flows between operators."""
    from pyflink.common import Types

    return Types.PRIMITIVE_ARRAY(Types.BYTE())


def keyed_type() -> Any:
    """Type of what flows to a topic: a row of (key, value)."""
    from pyflink.common import Types

    return Types.ROW([bytes_type(), bytes_type()])


def addressed_type(key_type: Any = None) -> Any:
    """Type of what flows to a keyed operator: a row of (key, envelope); keys are strings unless said otherwise."""
    from pyflink.common import Types

    return Types.ROW([key_type or Types.STRING(), bytes_type()])


def by_address(rows: Any, key_type: Any = None) -> Any:
    """A stream of rows of (key, value), keyed by what they bring along; the next operator gets the value.

    PyFlink's `key_by` makes the same rows in an operator of its own: one more call into Python for every record, and
    behind a union one more thread and hop. Here who makes a record makes its row.
    """
    from pyflink.common import Types
    from pyflink.datastream import KeyedStream
    from pyflink.java_gateway import get_gateway

    selector = get_gateway().jvm.KeyByKeySelector()
    keys = Types.ROW([key_type or Types.STRING()]).get_java_type_info()
    return KeyedStream(rows._j_data_stream.keyBy(selector, keys), bytes_type(), rows)


def bundles(records: Any, most: int, wait_ms: int) -> Any:
    """Records in bundles (`analytics.bundles`), made in Java between the source and Python.

    Args:
        most: records of a bundle.
        wait_ms: how long a record waits for others.

    Raises:
        BrokenConfiguration: Flink's class path lacks stoker-flink.jar.
    """
    from pyflink.datastream import DataStream
    from pyflink.java_gateway import get_gateway

    made = get_gateway().jvm.stoker.flink.BundleOperator
    if not callable(made):
        raise BrokenConfiguration(
            "warmup.bundle_records: Flink's class path has no stoker-flink.jar, which `make setup` builds: put it into "
            "Flink's lib folder or name it in warmup.connector_jars; or set warmup.bundle_records to 1"
        )
    operator = made(most, BUNDLE_BYTES, wait_ms)
    return DataStream(records._j_data_stream.transform("bundle", bytes_type().get_java_type_info(), operator))


def side(stream: Any, tag: Any) -> Any:
    """What leaves an operator by a tag.

    PyFlink's `get_side_output` lets every record through an identity function in Python, which process mode needs.
    """
    from pyflink.datastream import DataStream

    return DataStream(stream._j_data_stream.getSideOutput(tag.get_java_output_tag()))


def policy_state() -> Any:
    """Descriptor of the broadcast state: policy entries as bytes, by scope / section / writer."""
    from pyflink.common import Types
    from pyflink.datastream.state import MapStateDescriptor

    return MapStateDescriptor("policy", Types.STRING(), Types.PICKLED_BYTE_ARRAY())


def data_watermarks(timing: Timing, idle_ms: int) -> Any:
    """Event time of data topics: record timestamps, per partition, in the source.

    The alignment lets no partition run further ahead than `timing.drift_ms`. It is wider than the broker's bound on
    future stamps, so that a hostile producer cannot make its partition wait for the others.

    Args:
        idle_ms: one of the two of `timing`.
    """
    from pyflink.common import Duration, WatermarkStrategy

    return (
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(timing.out_of_orderness_ms))
        .with_idleness(Duration.of_millis(idle_ms))
        .with_watermark_alignment("stoker-data", Duration.of_millis(timing.drift_ms), Duration.of_millis(200))
    )


def policy_watermarks() -> Any:
    """Event time of the policy topic: idle as soon as it is quiet."""
    from pyflink.common import Duration, WatermarkStrategy

    return WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(POLICY_IDLE_MS))


def source(kafka: KafkaSettings, topics: Sequence[Topic], group: str, start: str, client: str = "") -> Any:
    """A source of record values. Null records (tombstones) are dropped by it.

    Args:
        kafka: where the broker is.
        topics: what to read.
        group: consumer group; offsets are committed to it at checkpoints, for people and for `start`.
        start: `earliest`, `latest` or `committed` (earliest where the group has none); a savepoint's offsets go first.
        client: start of the client's name; the group's where a group has one source.
    """
    from pyflink.common import ByteArraySchema
    from pyflink.datastream.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaSource

    offsets = {
        "earliest": KafkaOffsetsInitializer.earliest,
        "latest": KafkaOffsetsInitializer.latest,
        "committed": lambda: KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST),
    }[start]
    builder = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_topics(*(kafka.topic(topic) for topic in topics))
        .set_group_id(group)
        .set_client_id_prefix(client or group)
        .set_starting_offsets(offsets())
        .set_value_only_deserializer(ByteArraySchema())
    )
    for name, value in flink_properties(kafka).items():
        builder = builder.set_property(name, value)
    return builder.set_property("max.partition.fetch.bytes", str(FETCH_BYTES)).build()


def sink(kafka: KafkaSettings, topic: Topic) -> Any:
    """A sink of (key, value) rows, at least once: what a command or insight says is idempotent by its own id."""
    from pyflink.common.serialization import RowFieldExtractorSchema
    from pyflink.datastream.connectors.base import DeliveryGuarantee
    from pyflink.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink

    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(kafka.topic(topic))
        .set_key_serialization_schema(RowFieldExtractorSchema(0))
        .set_value_serialization_schema(RowFieldExtractorSchema(1))
        .build()
    )
    builder = (
        KafkaSink.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .set_record_serializer(serializer)
        .set_property("linger.ms", str(kafka.linger_ms))
        .set_property("delivery.timeout.ms", str(kafka.delivery_timeout_ms))
        .set_property("max.request.size", str(MAX_MESSAGE_BYTES))
    )
    for name, value in flink_properties(kafka).items():
        builder = builder.set_property(name, value)
    return builder.build()
