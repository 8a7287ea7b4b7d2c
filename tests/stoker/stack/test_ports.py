from __future__ import annotations

import os
import socket

import pytest

from schemas.errors import StackFault
from stoker.stack import ports


def test_a_taken_port_is_named_with_its_holder_and_the_cure() -> None:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not ports.is_free(port)
        assert ports.answers(port)
        with pytest.raises(
            StackFault, match=rf"port {port} for Redis is taken by process {os.getpid()} .*--redis-port"
        ):
            ports.demand_free(port, "Redis", "--redis-port")
    assert ports.is_free(port)
    assert not ports.answers(port)


def test_free_ports_differ() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    pair = ports.free_pair()
    assert ports.is_free(pair)
    assert ports.is_free(pair + 1)
