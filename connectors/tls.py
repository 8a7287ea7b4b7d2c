"""TLS of a client by files of certificates, the same for Kafka, Redis and engines."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import BrokenConfiguration


def client_context(
    keys: str,
    *,
    cafile: Path | None = None,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    password: str | None = None,
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """Who is trusted, and who we are.

    Args:
        keys: how the settings of these files begin, for messages, such as `kafka.ssl_`.
        cafile: PEM of trusted authorities; the system's own if None.
        certfile: PEM of our certificate and its chain; `keyfile`: PEM of its key; `password`: of the key.
        check_hostname: whether the server's certificate must name the host that we asked for.

    Raises:
        BrokenConfiguration: a file is missing or does not hold what it should, or the key's password is wrong.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_hostname
    if cafile is None:
        context.load_default_certs()
    else:
        with _reading(f"{keys}cafile", cafile):
            context.load_verify_locations(cafile)
    if certfile is not None:
        with _reading(f"{keys}certfile, {keys}keyfile or the key's password", certfile):
            # An encrypted key would be asked for at the terminal if no password were given.
            context.load_cert_chain(certfile, keyfile, password or "")
    return context


@contextlib.contextmanager
def _reading(keys: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as fault:
        told = str(fault) if isinstance(fault, ssl.SSLError | ValueError) else fault.strerror
        raise BrokenConfiguration(f"{keys}: {path} cannot be used ({told or type(fault).__name__})") from None
