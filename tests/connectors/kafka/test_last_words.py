"""What a broker says before it hangs up is heard, although kafka-python throws it away."""

from __future__ import annotations

import socket

import pytest
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from connectors.kafka.last_words import hear_out


@pytest.mark.parametrize("kind", [KafkaTCPTransport, KafkaSSLTransport])
def test_an_answer_that_comes_with_the_end_of_the_connection_is_heard_and_then_the_end(kind: type) -> None:
    hear_out()
    hear_out()
    ours, broker = socket.socketpair()
    ours.setblocking(False)
    transport = kind.__new__(kind)
    transport._sock = ours
    transport.host = "broker"
    transport._closed = False
    broker.sendall(b"refused")
    broker.close()
    assert transport._sock_recv() == (b"refused", None)
    data, end = transport._sock_recv()
    assert data == b""
    assert "disconnected" in str(end)
    ours.close()
