"""TLS with a broker: what its settings are worth, and why it does not come about.

kafka-python repeats a failed handshake until its time is over, and tells the reason to its log alone: we ask ourselves.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from connectors.settings import KafkaSettings
from connectors.tls import client_context

DEFAULT_PORT = 9092
PATIENCE_S = 5.0
"""For one step of one handshake."""
_NAMES_ANOTHER_HOST = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH."""


def checked_context(settings: KafkaSettings, environ: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """TLS as kafka-python makes it of the same settings.

    Args:
        environ: replaces the process environment when the key's password is looked up.

    Raises:
        BrokenConfiguration: a file is missing or does not hold what it should, or the key's password is wrong.
    """
    password = settings.ssl_key_password
    return client_context(
        "kafka.ssl_",
        cafile=settings.ssl_cafile,
        certfile=settings.ssl_certfile,
        keyfile=settings.ssl_keyfile,
        password=None if password is None else password.reveal(environ),
        check_hostname=settings.ssl_check_hostname,
    )


def why_refused(
    settings: KafkaSettings, environ: Mapping[str, str] | None = None, *, refusal_s: float = 0.0
) -> str | None:
    """What keeps us from every broker that accepts connections, with the cure; None if it is not TLS, or if none does.

    Args:
        environ: as for `checked_context`.
        refusal_s: how long to wait for a broker to refuse our certificate; in TLS 1.3 it does so after the handshake.
    """
    reasons: list[str] = []
    for address in settings.bootstrap.split(","):
        parts = urlsplit(f"//{address.strip()}")
        host, port = parts.hostname or "", parts.port or DEFAULT_PORT
        try:
            with socket.create_connection((host, port), timeout=PATIENCE_S) as plain:
                why = _with_tls(plain, host, settings, environ, refusal_s) if settings.uses_tls else _without_tls(plain)
        except OSError:
            continue
        if why is None:
            return None
        reasons.append(f"{host}:{port} {why}")
    return "; ".join(reasons) or None


def _with_tls(
    plain: socket.socket, host: str, settings: KafkaSettings, environ: Mapping[str, str] | None, refusal_s: float
) -> str | None:
    try:
        with checked_context(settings, environ).wrap_socket(plain, server_hostname=host.rstrip(".")) as tls:
            return _refusal(tls, refusal_s)
    except ssl.SSLCertVerificationError as fault:
        if fault.verify_code in _NAMES_ANOTHER_HOST:
            return (
                f"has a certificate that does not name it ({fault.verify_message}): set kafka.bootstrap to a name that"
                " it holds, or kafka.ssl_check_hostname = false"
            )
        return (
            f"has a certificate that is not trusted here ({fault.verify_message}): kafka.ssl_cafile must hold the"
            " authority that signed it"
        )
    except (ssl.SSLEOFError, ConnectionError):
        return "ended the connection instead of speaking TLS: take a listener with TLS, or correct security_protocol"
    except ssl.SSLError as fault:
        if fault.reason == "WRONG_VERSION_NUMBER":
            return "does not speak TLS: take a listener with TLS, or correct kafka.security_protocol"
        return _unwanted(fault)


def _refusal(tls: ssl.SSLSocket, patience_s: float) -> str | None:
    """A broker says nothing before it is asked, unless it refuses our certificate or its absence."""
    if patience_s <= 0:
        return None
    tls.settimeout(patience_s)
    try:
        tls.recv(1)
    except ssl.SSLError as fault:
        return _unwanted(fault)
    except OSError:
        return None
    return None


def _unwanted(fault: ssl.SSLError) -> str:
    return (
        f"refuses us in the handshake ({fault.reason}): if it asks clients for a certificate, kafka.ssl_certfile and"
        " kafka.ssl_keyfile must hold one that it trusts"
    )


def _without_tls(plain: socket.socket) -> str | None:
    """Whether what listens there speaks TLS, whoever it is: nothing is sent but a greeting."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_socket(plain).close()
    except OSError:
        return None
    return "expects TLS: set kafka.security_protocol to SSL or SASL_SSL, and kafka.ssl_cafile"
