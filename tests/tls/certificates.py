"""A certificate authority for one test session, made by the `openssl` program: Python's own ssl makes none."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import StackFault

SERVER_NAMES = "subjectAltName=IP:127.0.0.1"
"""`localhost` is left out, so that a server under that name is one whose certificate does not name it."""
KEY_PASSWORD = "key-pass-9d41"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key (PKCS#8), as files.

    Attributes:
        both: the two in one file, as Kafka's broker wants its key store.
        open_key: the key without a password.
    """

    certificate: Path
    key: Path
    both: Path

    @property
    def open_key(self) -> Path:
        return self.key.with_suffix(".open")


class Authority:
    """Signs what a test needs.

    Raises:
        StackFault: there is no `openssl`.
    """

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        if shutil.which("openssl") is None:
            raise StackFault("certificates are made by the program openssl, which is not on PATH: install it")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate, self._key = folder / "ca.pem", folder / "ca.key"
        self._run("ca", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign")

    def server(self) -> Pair:
        """A server on the loopback."""
        return self._signed("server", "/CN=server", "-addext", SERVER_NAMES)

    def client(self, name: str) -> Pair:
        """A client, whose key is encrypted with KEY_PASSWORD, in the way that Java 17 reads (docs/deployment.md)."""
        pair = self._signed(name, f"/CN={name}", "-addext", "extendedKeyUsage=clientAuth")
        open_key = pair.key.rename(pair.open_key)
        command = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{KEY_PASSWORD}"]
        subprocess.run([*command, "-in", open_key, "-out", pair.key], check=True, capture_output=True)
        return pair

    def _signed(self, file: str, subject: str, *more: str) -> Pair:
        self._run(file, subject, *more, "-addext", "basicConstraints=critical,CA:FALSE", signer=True)
        pair = Pair(*(self._folder / f"{file}.{kind}" for kind in ("pem", "key", "both.pem")))
        pair.both.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
        return pair

    def _run(self, file: str, subject: str, *more: str, signer: bool = False) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "2", "-subj", subject]
        files = ["-keyout", self._folder / f"{file}.key", "-out", self._folder / f"{file}.pem"]
        by = ["-CA", self.certificate, "-CAkey", self._key] if signer else []
        subprocess.run([*command, *files, *by, *more], check=True, capture_output=True)
