"""Ports: free ones for tests, named ones for people, and who holds a taken one."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import StackFault

LOOPBACK = "127.0.0.1"
LOWEST = 12_000
"""Free ports are taken from here upwards: well-known services live below."""
_CHANCE = random.SystemRandom()
_GIVEN: set[int] = set()
"""What this process was given: a port that its next service has not opened yet looks free, and is not."""


def free_port() -> int:
    """A port that nothing listens on now, as in :func:`free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports that nothing listens on now, none given twice. Another process may take one before it is used.

    They lie below the range that outgoing connections use: in it a client that dials a dead server again and again may
    be given that very port, connect to itself, and keep the server from coming back.
    """
    return [_block(1) for _ in range(count)]


def free_pair() -> int:
    """A free port whose successor is free too."""
    return _block(2)


def _block(length: int) -> int:
    """First of `length` free ports in a row."""
    while True:
        first = _CHANCE.randrange(LOWEST, _ephemeral_from() - length)
        block = range(first, first + length)
        if _GIVEN.isdisjoint(block) and all(map(is_free, block)):
            _GIVEN.update(block)
            return first


def _ephemeral_from() -> int:
    told = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(told.read_text().split()[0]) if told.exists() else 32_768
    return first if first > LOWEST + 1_000 else 65_000


def answers(port: int, timeout_s: float = 0.5) -> bool:
    """Whether something accepts connections on this port of the loopback."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def is_free(port: int) -> bool:
    """Whether a server could listen on this port. Connections of a dead server that still linger do not count."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def holder_pid(port: int) -> int | None:
    """Who listens on `port`; None where /proc does not tell it."""
    inodes = set(_listening_inodes(port))
    for folder in Path("/proc").glob("[0-9]*"):
        if inodes.intersection(_open_files(folder)):
            return int(folder.name)
    return None


def holder(port: int) -> str:
    """Who listens on `port`, in words: the process where /proc tells it, else that it is not known."""
    pid = holder_pid(port)
    try:
        command = "" if pid is None else Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:  # ended meanwhile
        command = ""
    if pid is None:
        return "a process that this user cannot see"
    return f"process {pid} ({command.replace(chr(0), ' ').strip()[:100]})"


def _open_files(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):  # ended meanwhile, or of another user
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                yield os.readlink(link)


def _listening_inodes(port: int) -> Iterator[str]:
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                yield f"socket:[{fields[9]}]"


def demand_free(port: int, service: str, setting: str) -> None:
    """Check a port before a service is started on it.

    Args:
        port: the port.
        service: name for the message.
        setting: what the user changes to move it, such as `--kafka-port`.

    Raises:
        StackFault: when taken; the message names the holder.
    """
    if not is_free(port):
        raise StackFault(
            f"port {port} for {service} is taken by {holder(port)}: stop that, or choose another with {setting}"
        )
