from __future__ import annotations

import os
import socket
from unittest.mock import Mock

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


def test_a_port_that_was_given_is_not_given_again_before_its_service_has_opened_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = ports.free_pair()
    proposed = iter([first, first + 1, first - 1, *range(first + 2, first + 200)])
    monkeypatch.setattr(ports, "_CHANCE", Mock(randrange=lambda *_: next(proposed)))
    assert ports.free_pair() > first + 1, "both of a pair are taken, and a pair must not overlap it"


def test_free_ports_differ() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    pair = ports.free_pair()
    assert ports.is_free(pair)
    assert ports.is_free(pair + 1)
