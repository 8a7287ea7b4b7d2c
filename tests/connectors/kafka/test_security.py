"""One set of settings in two dialects."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from connectors.kafka import client_options, flink_properties
from connectors.settings import KafkaSettings, SecretRef
from schemas.errors import BrokenConfiguration

PLAIN = KafkaSettings(bootstrap="a:1,b:2")
TLS = KafkaSettings(
    security_protocol="SSL",
    ssl_cafile=Path("ca.pem"),
    ssl_certfile=Path("cert.pem"),
    ssl_keyfile=Path("key.pem"),
    ssl_key_password=SecretRef(env="KEY"),
    ssl_check_hostname=False,
)
LOGIN = KafkaSettings(
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_username="stoker",
    sasl_password=SecretRef(env="PW"),
)


def test_plain_connection() -> None:
    assert client_options(PLAIN) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "PLAINTEXT",
        "request_timeout_ms": 30_000,
    }
    assert flink_properties(PLAIN) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "PLAINTEXT",
        "request.timeout.ms": "30000",
    }


def test_client_certificate() -> None:
    options = client_options(TLS, {"KEY": "k"})
    assert options["ssl_cafile"] == "ca.pem"
    assert options["ssl_certfile"] == "cert.pem"
    assert options["ssl_keyfile"] == "key.pem"
    assert options["ssl_password"] == "k"
    assert options["ssl_check_hostname"] is False
    properties = flink_properties(TLS, {"KEY": "k"}, read_pem=lambda path: f"<{path}>")
    assert properties["ssl.truststore.type"] == properties["ssl.keystore.type"] == "PEM"
    assert properties["ssl.truststore.location"] == "ca.pem"
    assert properties["ssl.keystore.certificate.chain"] == "<cert.pem>"
    assert properties["ssl.keystore.key"] == "<key.pem>"
    assert properties["ssl.key.password"] == "k"
    assert properties["ssl.endpoint.identification.algorithm"] == ""


def test_login() -> None:
    options = client_options(LOGIN, {"PW": "p"})
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert options["sasl_plain_username"] == "stoker"
    assert options["sasl_plain_password"] == "p"
    assert options["ssl_check_hostname"] is True
    properties = flink_properties(LOGIN, {"PW": "p"})
    assert properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert properties["sasl.jaas.config"] == (
        "org.apache.flink.kafka.shaded.org.apache.kafka.common.security.scram.ScramLoginModule"
        ' required username="stoker" password="p";'
    )
    assert "ssl.endpoint.identification.algorithm" not in properties


def test_password_cannot_add_an_option_of_its_own() -> None:
    config = flink_properties(LOGIN, {"PW": 'a" debug="true\\'})["sasl.jaas.config"]
    assert config.endswith(r'password="a\" debug=\"true\\";')


def test_missing_secret_and_missing_file_are_the_users_mistakes(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="PW"):
        client_options(LOGIN, {})
    gone = TLS.model_copy(update={"ssl_certfile": tmp_path / "gone.pem"})
    with pytest.raises(BrokenConfiguration, match=r"gone\.pem"):
        flink_properties(gone, {"KEY": "k"})


def test_kafka_python_knows_every_option() -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient

    for options in (client_options(PLAIN), client_options(TLS, {"KEY": "k"}), client_options(LOGIN, {"PW": "p"})):
        for client in (KafkaConsumer, KafkaProducer, KafkaAdminClient):
            assert options.keys() <= client.DEFAULT_CONFIG.keys()


def test_debug_lines_of_the_client_which_show_passwords_are_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client_options(PLAIN)
    assert not logging.getLogger("kafka.protocol.parser").isEnabledFor(logging.DEBUG)
