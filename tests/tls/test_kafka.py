"""A real broker that takes only TLS: by name and password (SCRAM, PLAIN), by certificate, each with its rights."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from secured_kafka import PASSWORD, SETTINGS, WRONG, Broker, admit, secured

from connectors.kafka import KafkaAdmin, KafkaRecordConsumer, KafkaRecordProducer, flink_properties
from connectors.kafka.security import FLINK_CLIENT
from connectors.settings import KafkaSettings, SecretRef
from schemas.errors import BrokenConfiguration
from schemas.topics import COMMANDS, INSIGHTS, POLICY, REQUESTS, TOPICS, Topic
from stoker.stack import ports
from stoker.stack.java import java_home
from stoker.stack.kafka import Kafka, KafkaConfig
from stoker.stack.paths import StateFolder, jars

pytestmark = pytest.mark.service

READY_S = 300.0
CONNECT_MS = 20_000
"""For what is noticed at once."""
LEFT_OUT_MS = 1_000
"""For what is only asked once a client has given up."""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def broker(
    started: Callable[[Callable[[], Any]], Any], stack_state: StateFolder, authority: Authority
) -> Iterator[Broker]:
    plain, controller, login, certificate = ports.free_ports(4)
    properties = secured(authority, plain, controller, login, certificate)
    config = KafkaConfig(plain, controller, heap_mb=256, partitions=1, properties=properties)
    kafka = Kafka(config, stack_state, name="kafka-tls")
    started(lambda: kafka.start(READY_S))
    client = authority.client("stoker-client")
    admit(kafka.bootstrap)
    addresses = (f"{ports.LOOPBACK}:{port}" for port in (plain, login, certificate))
    yield Broker(*addresses, authority, client)
    kafka.stop()


@pytest.mark.parametrize("way", ["scram", "plain", "certificate"])
def test_admin_producer_and_consumer_work_with_the_rights_of_the_documentation(
    broker: Broker, way: str, everything_told: Callable[..., str]
) -> None:
    welcome = broker.ways()[way]
    admin = KafkaAdmin(welcome)
    admin.create((REQUESTS, COMMANDS))
    assert admin.check((REQUESTS, COMMANDS)) == []
    admin.close()
    marker = f"through TLS, {way}".encode()
    with KafkaRecordProducer(welcome) as producer:
        producer.send(REQUESTS.name, marker, key=b"k")
        producer.flush()
    with KafkaRecordConsumer(welcome, group=welcome.group("tls")) as consumer:
        assert marker in [record.value for record in consumer.read_to_end(REQUESTS.name)]
        consumer.subscribe([REQUESTS.name])
        records = []
        while not records:
            records = consumer.poll(1_000)
        consumer.commit({records[0].place: records[0].offset + 1})
        assert consumer.committed(records[0].place) == records[0].offset + 1
    assert not any(secret in everything_told() for secret in SETTINGS.values())


FOUND_LATE = ("plain client", "no certificate", "certificate of a stranger")


def _connect(client: str, settings: KafkaSettings, patience_ms: int) -> Any:
    if client == "admin":
        return KafkaAdmin(settings, connect_timeout_ms=patience_ms)
    if client == "producer":
        return KafkaRecordProducer(settings, connect_timeout_ms=patience_ms)
    return KafkaRecordConsumer(settings, group="stoker-x", connect_timeout_ms=patience_ms)


@pytest.mark.parametrize(
    ("wrong", "client", "told"),
    [
        ("authority", "producer", "certificate that is not trusted here .*kafka.ssl_cafile"),
        ("authority", "consumer", "certificate that is not trusted here .*kafka.ssl_cafile"),
        ("authority", "admin", "certificate that is not trusted here .*kafka.ssl_cafile"),
        ("host", "producer", "does not name it .*kafka.bootstrap"),
        ("password", "producer", r"SaslAuthenticationFailed.*\[kafka\] section: login"),
        ("password", "consumer", r"SaslAuthenticationFailed.*\[kafka\] section: login"),
        ("password", "admin", r"SaslAuthenticationFailed.*\[kafka\] section: login"),
        ("mechanism", "admin", r"UnsupportedSaslMechanism.*\[kafka\] section: login"),
        ("plain client", "consumer", "expects TLS: set kafka.security_protocol"),
        ("plain broker", "producer", "instead of speaking TLS|does not speak TLS"),
        ("no certificate", "consumer", "refuses us in the handshake .*kafka.ssl_certfile"),
        ("certificate of a stranger", "admin", "refuses us in the handshake .*kafka.ssl_certfile"),
        ("key password", "admin", "ssl_keyfile or the key's password: .* cannot be used"),
        ("no such file", "admin", "ssl_cafile: .*nowhere.pem cannot be used .No such file"),
    ],
)
def test_who_is_turned_away_is_told_why_and_what_to_do(
    broker: Broker, stranger: Authority, wrong: str, client: str, told: str, everything_told: Callable[..., str]
) -> None:
    patience_ms = LEFT_OUT_MS if wrong in FOUND_LATE else CONNECT_MS
    with pytest.raises(BrokenConfiguration, match=told) as refused:
        _connect(client, _wrong(broker, stranger, wrong), patience_ms)
    assert refused.value.exit_code == 2
    everything = everything_told(refused.value)
    assert not any(secret in everything for secret in SETTINGS.values())


def _wrong(broker: Broker, stranger: Authority, what: str) -> KafkaSettings:
    if what == "certificate of a stranger":
        pair = stranger.client("stoker-client")
        return broker.by_certificate(ssl_certfile=pair.certificate, ssl_keyfile=pair.key)
    none = {"ssl_certfile": None, "ssl_keyfile": None, "ssl_key_password": None}
    made: Mapping[str, Callable[[], KafkaSettings]] = {
        "authority": lambda: broker.by_name(ssl_cafile=stranger.certificate),
        "host": lambda: broker.by_name(bootstrap=broker.login.replace(ports.LOOPBACK, "localhost")),
        "password": lambda: broker.by_name(secret="STOKER_TEST_WRONG"),
        "mechanism": lambda: broker.by_name(sasl_mechanism="SCRAM-SHA-256"),
        "plain client": lambda: KafkaSettings(bootstrap=broker.login),
        "plain broker": lambda: broker.by_name(bootstrap=broker.plain),
        "no certificate": lambda: broker.by_certificate(**none),
        "key password": lambda: broker.by_certificate(ssl_key_password=SecretRef(env="STOKER_TEST_WRONG")),
        "no such file": lambda: broker.by_name(ssl_cafile=Path("nowhere.pem")),
    }
    return made[what]()


def test_a_host_that_the_certificate_does_not_name_is_taken_where_it_is_not_asked_for(broker: Broker) -> None:
    named = broker.login.replace(ports.LOOPBACK, "localhost")
    KafkaAdmin(broker.by_name(bootstrap=named, ssl_check_hostname=False)).close()


def test_missing_rights_are_named(broker: Broker) -> None:
    _create(broker.by_name(), REQUESTS)
    reader = broker.by_name("reader", group_prefix="reader")
    with KafkaRecordConsumer(reader, group=reader.group("x")) as consumer:
        assert consumer.partitions(REQUESTS.name)
    with (
        KafkaRecordProducer(reader) as producer,
        pytest.raises(BrokenConfiguration, match=r"sending to llm.req.*rights"),
    ):
        producer.send(REQUESTS.name, b"x").wait()
    with (
        KafkaRecordProducer(broker.by_name()) as producer,
        pytest.raises(BrokenConfiguration, match=r"sending to elsewhere: .*TopicAuthorization.*rights"),
    ):
        producer.send("elsewhere", b"x").wait()
    with KafkaRecordConsumer(reader, group="stoker-executor") as consumer:
        consumer.subscribe([REQUESTS.name])
        with pytest.raises(BrokenConfiguration, match=r"GroupAuthorization.*stoker-executor.*rights"):
            consumer.poll(10_000)
    with pytest.raises(BrokenConfiguration, match=r"warmup.insights: .*Authorization"):
        _create(reader, INSIGHTS)


def _create(settings: KafkaSettings, *topics: Topic) -> None:
    with contextlib.closing(KafkaAdmin(settings)) as admin:
        admin.create(topics)


def test_the_topics_are_made_by_the_login_of_the_configuration(broker: Broker, tmp_path: Path) -> None:
    config = tmp_path / "stoker.toml"
    config.write_text(
        f"""
        [kafka]
        bootstrap = "{broker.login}"
        security_protocol = "SASL_SSL"
        sasl_mechanism = "SCRAM-SHA-512"
        sasl_username = "stoker"
        sasl_password = {{ env = "STOKER_TEST_PASSWORD" }}
        ssl_cafile = "{broker.authority.certificate}"
        """
    )
    command = [sys.executable, "-m", "stoker.stack.topics", "--config", str(config), "--production", "--replicas", "1"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert made.returncode == 0, made.stderr
    with contextlib.closing(KafkaAdmin(broker.by_name())) as admin:
        assert {topic.name for topic in TOPICS} <= admin.names()
        assert admin.check([POLICY], local=False) == []
    environment = {**os.environ, "STOKER_TEST_PASSWORD": WRONG}
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert refused.returncode == BrokenConfiguration.exit_code
    assert "topics: Kafka, connecting to" in refused.stderr
    assert WRONG not in refused.stderr + refused.stdout


def test_the_executor_ends_with_the_exit_code_of_a_wrong_configuration(
    broker: Broker, stranger: Authority, tmp_path: Path
) -> None:
    config = tmp_path / "stoker.toml"
    config.write_text(
        f"""
        [kafka]
        bootstrap = "{broker.login}"
        security_protocol = "SASL_SSL"
        sasl_mechanism = "SCRAM-SHA-512"
        sasl_username = "stoker"
        sasl_password = {{ env = "STOKER_TEST_PASSWORD" }}
        ssl_cafile = "{stranger.certificate}"
        [executor]
        admin_port = 0
        """
    )
    command = [sys.executable, "-m", "executor", "--config", str(config), "--log-level", "DEBUG"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == BrokenConfiguration.exit_code, ended.stderr
    assert f"executor: Kafka: {broker.login} has a certificate that is not trusted here" in ended.stderr
    assert PASSWORD not in ended.stdout + ended.stderr


@pytest.mark.parametrize("way", ["scram", "plain", "certificate"])
def test_flinks_java_client_reads_by_the_properties_that_it_is_given(broker: Broker, java: Any, way: str) -> None:
    """By the very jar that the jobs run with. Its classes are renamed, and a login module is looked up by its name."""
    _create(broker.by_name(), REQUESTS)
    with KafkaRecordProducer(broker.by_name()) as producer:
        producer.send(REQUESTS.name, b"for Flink", partition=0).wait()
    properties = java.jvm.java.util.Properties()
    for name, value in flink_properties(broker.ways()[way]).items():
        properties.setProperty(name, value)
    for side in ("key", "value"):
        properties.setProperty(f"{side}.deserializer", f"{FLINK_CLIENT}.common.serialization.StringDeserializer")
    client = java.jvm.org.apache.flink.kafka.shaded.org.apache.kafka
    consumer = client.clients.consumer.KafkaConsumer(properties)
    places = java.jvm.java.util.ArrayList()
    places.add(client.common.TopicPartition(REQUESTS.name, 0))
    consumer.assign(places)
    consumer.seekToBeginning(places)
    deadline = time.monotonic() + 60
    values: list[str] = []
    while "for Flink" not in values and time.monotonic() < deadline:
        records = consumer.poll(java.jvm.java.time.Duration.ofSeconds(1)).iterator()
        while records.hasNext():
            values.append(records.next().value())
    consumer.close()
    assert "for Flink" in values


@pytest.fixture(scope="module")
def java(started: Callable[[Callable[[], Any]], Any]) -> Iterator[JavaGateway]:
    """A Java with Flink's connector and nothing else that knows Kafka."""
    logs = [jar for jar in started(lambda: jars("kafka")) if jar.name.startswith("slf4j")]
    command = [str(java_home() / "bin" / "java"), "-Xmx128m", "-cp"]
    command.append(":".join(map(str, [*jars("flink"), *logs, find_jar_path()])))
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    told = int(server.stdout.readline())
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=told))
    yield gateway
    gateway.shutdown()
    server.kill()
    server.wait()
