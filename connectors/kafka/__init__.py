"""Kafka behind four small ports: admin, producer, consumer and the settings that reach a broker.

`KafkaAdmin`, `KafkaRecordProducer` and `KafkaRecordConsumer` speak to a real broker by kafka-python;
`fake.MemoryBroker` keeps the same contract in memory. Flink reads and writes Kafka itself, by `flink_properties`.
"""

from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.base import (
    Admin,
    Consumer,
    Delivery,
    Difference,
    Position,
    Producer,
    RebalanceListener,
    Record,
    TopicPartition,
)
from connectors.kafka.consumer import KafkaRecordConsumer
from connectors.kafka.producer import KafkaRecordProducer
from connectors.kafka.security import client_options, flink_properties

__all__ = [
    "Admin",
    "Consumer",
    "Delivery",
    "Difference",
    "KafkaAdmin",
    "KafkaRecordConsumer",
    "KafkaRecordProducer",
    "Position",
    "Producer",
    "RebalanceListener",
    "Record",
    "TopicPartition",
    "client_options",
    "flink_properties",
]
