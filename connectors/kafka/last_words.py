"""What a broker says before it hangs up, which kafka-python (3.0.12) throws away.

Its transports read until nothing is left, and when the end of the connection is part of that, what came before it is
dropped. A broker that refuses a login answers so and hangs up: as often as not the client saw a lost connection, tried
again until its time was over, and told of a timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

_Read = Callable[[Any], tuple[bytes, Exception | None]]


def _heard_out(read: _Read) -> _Read:
    """Gives what came first; the end is found again at the next reading, for a closed socket stays readable."""

    def heard_out(transport: Any) -> tuple[bytes, Exception | None]:
        data, end = read(transport)
        return (data, None) if data else (data, end)

    return heard_out


def hear_out() -> None:
    """Lets every kafka-python client of this process hear its brokers out. Calling it twice is harmless."""
    for transport in (KafkaTCPTransport, KafkaSSLTransport):
        if getattr(transport, "_stoker_hears_out", None) is not transport:
            transport._sock_recv = _heard_out(transport._sock_recv)
            transport._stoker_hears_out = transport
