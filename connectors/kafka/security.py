"""One KafkaSettings, spoken in two dialects: kafka-python's keywords and the Java client's properties (Flink)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from connectors.settings import KafkaSettings
from schemas.errors import BrokenConfiguration

FLINK_CLIENT = "org.apache.flink.kafka.shaded.org.apache.kafka"
"""Package of the Java client inside Flink's connector (flink-sql-connector-kafka), which renames all its classes.

Java looks login modules up by name, so that it finds none under the client's own name `org.apache.kafka`.
"""
_LOGIN_MODULES = {
    "PLAIN": "common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "common.security.scram.ScramLoginModule",
}

_CLIENT_LOG = logging.getLogger("kafka")


def client_options(settings: KafkaSettings, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Keyword arguments that every kafka-python client takes. The result holds revealed secrets: never log it.

    Args:
        environ: replaces the process environment when secrets are looked up.

    Raises:
        BrokenConfiguration: a secret is missing.
    """
    # kafka-python's debug lines show its whole configuration and every byte that it sends, passwords among them.
    if _CLIENT_LOG.getEffectiveLevel() < logging.INFO:
        _CLIENT_LOG.setLevel(logging.INFO)
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap.split(","),
        "security_protocol": settings.security_protocol,
        "request_timeout_ms": settings.request_timeout_ms,
    }
    if settings.uses_tls:
        options["ssl_check_hostname"] = settings.ssl_check_hostname
        files = {
            "ssl_cafile": settings.ssl_cafile,
            "ssl_certfile": settings.ssl_certfile,
            "ssl_keyfile": settings.ssl_keyfile,
        }
        options |= {name: str(path) for name, path in files.items() if path is not None}
        if settings.ssl_key_password is not None:
            options["ssl_password"] = settings.ssl_key_password.reveal(environ)
    if settings.uses_sasl:
        assert settings.sasl_password is not None
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password.reveal(environ)
    return options


def _read_pem(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as fault:
        raise BrokenConfiguration(f"[kafka] {path} cannot be read as PEM ({type(fault).__name__})") from None


def _quoted(text: str) -> str:
    """A JAAS string: backslash and double quote are escaped, so that no password can add an option of its own."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def flink_properties(
    settings: KafkaSettings,
    environ: Mapping[str, str] | None = None,
    read_pem: Callable[[Path], str] = _read_pem,
) -> dict[str, str]:
    """Properties of the Java client for the same broker: what a Flink KafkaSource or KafkaSink gets.

    Client certificate and key travel as text, because Java wants both in one file and we have two; the authorities stay
    a path, which must exist on every TaskManager. Holds revealed secrets: never log it.

    Args:
        environ: replaces the process environment when secrets are looked up.
        read_pem: reads a PEM file.

    Raises:
        BrokenConfiguration: a secret or a PEM file is missing.
    """
    properties = {
        "bootstrap.servers": settings.bootstrap,
        "security.protocol": settings.security_protocol,
        "request.timeout.ms": str(settings.request_timeout_ms),
    }
    if settings.uses_tls:
        if not settings.ssl_check_hostname:
            properties["ssl.endpoint.identification.algorithm"] = ""
        if settings.ssl_cafile is not None:
            properties["ssl.truststore.type"] = "PEM"
            properties["ssl.truststore.location"] = str(settings.ssl_cafile)
        if settings.ssl_certfile is not None and settings.ssl_keyfile is not None:
            properties["ssl.keystore.type"] = "PEM"
            properties["ssl.keystore.certificate.chain"] = read_pem(settings.ssl_certfile)
            properties["ssl.keystore.key"] = read_pem(settings.ssl_keyfile)
        if settings.ssl_key_password is not None:
            properties["ssl.key.password"] = settings.ssl_key_password.reveal(environ)
    if settings.uses_sasl:
        assert settings.sasl_mechanism is not None
        assert settings.sasl_username is not None
        assert settings.sasl_password is not None
        password = settings.sasl_password.reveal(environ)
        properties["sasl.mechanism"] = settings.sasl_mechanism
        properties["sasl.jaas.config"] = (
            f"{FLINK_CLIENT}.{_LOGIN_MODULES[settings.sasl_mechanism]} required "
            f"username={_quoted(settings.sasl_username)} password={_quoted(password)};"
        )
    return properties
